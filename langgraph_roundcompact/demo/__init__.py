"""`roundcompact demo`: a real agent at work in a window that is far too small for its task.

Everything is real but the agent's model: a LangGraph `StateGraph` with a `ToolNode`, a SQLite checkpointer, tools that read files and start
processes, and the installed LangGraph sources as the code they work on. The model follows a script, and the script knows nothing but the
messages of the request: when its plan is lost from the window, the demo fails.
"""
