(() => {
  "use strict";
  const texts = JSON.parse(document.getElementById("texts").textContent);
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

  // Long texts are put in place when they are opened, as text: nothing in them is ever read as markup.
  const fill = (pre) => {
    if (!pre.firstChild) pre.textContent = texts[Number(pre.dataset.ref)] ?? "";
  };
  document.addEventListener("toggle", (event) => {
    if (!event.target.open) return;
    all(":scope > pre[data-ref]", event.target).forEach(fill);
    if (query) highlight();
  }, true);

  const theme = document.getElementById("theme");
  const themes = ["system", "dark", "light"];
  theme.addEventListener("click", () => {
    const label = theme.querySelector("span");
    const next = themes[(themes.indexOf(label.textContent) + 1) % themes.length];
    label.textContent = next;
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
  });

  const goTo = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const inner = target && target.querySelector(":scope > details");
    if (!inner) return;
    inner.open = true;
    target.scrollIntoView();
    inner.querySelector("summary").focus({ preventScroll: true });
  };
  addEventListener("hashchange", goTo);
  // A second click on the same place in the picture changes no hash.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#c'], a[href^='#s']");
    if (link && link.getAttribute("href") === location.hash) goTo();
  });

  const input = document.getElementById("q");
  const found = document.getElementById("found");
  const items = all("[data-find]");
  const cards = all(".card");
  let query = "";
  let waiting = 0;

  const snippet = (row, text, at) => {
    const words = row.querySelector(".words");
    if (!words) return;
    words.dataset.was ??= words.textContent;
    const from = Math.max(at - 40, 0);
    words.textContent = at < 0 ? words.dataset.was : (from ? "…" : "") + text.slice(from, at + 120).replace(/\s+/g, " ");
  };

  const search = () => {
    query = input.value.trim().toLowerCase();
    const active = query.length > 1;
    const places = active ? texts.map((text) => text.toLowerCase().indexOf(query)) : [];
    let hits = 0;
    const perCard = new Map();
    for (const item of items) {
      const ref = item.dataset.ref;
      const words = item.querySelector(".words");
      if (words && words.dataset.was !== undefined) words.textContent = words.dataset.was;
      const here = active && (ref === undefined ? item : item.querySelector(".preview")).textContent.toLowerCase().includes(query);
      const inside = active && ref !== undefined && places[ref] >= 0;
      if (inside && !here) snippet(item, texts[ref], places[ref]);
      const hit = here || inside;
      if (!item.classList.contains("block") && !item.classList.contains("text")) item.hidden = active && !hit;
      if (!hit) continue;
      hits += 1;
      const group = item.closest(".group");
      if (group) group.open = true;
      const card = item.closest(".card");
      perCard.set(card, (perCard.get(card) ?? 0) + 1);
    }
    for (const card of cards) {
      const count = perCard.get(card) ?? 0;
      const badge = card.querySelector(".hits");
      card.hidden = active && !count;
      badge.hidden = !active || !count;
      badge.textContent = count === 1 ? "1 match" : `${count} matches`;
    }
    found.textContent = !active ? "" : hits ? `${hits} ${hits === 1 ? "place" : "places"} in ${perCard.size} ${perCard.size === 1 ? "step" : "steps"}` : "Nothing found";
    const first = cards.find((card) => perCard.has(card));
    if (first && !cards.some((card) => perCard.has(card) && card.firstElementChild.open)) first.firstElementChild.open = true;
    highlight();
  };

  const highlight = () => {
    if (!CSS.highlights) return;
    CSS.highlights.delete("found");
    if (query.length < 2) return;
    const ranges = [];
    for (const root of all(".card:not([hidden]) > details[open] > .inside")) {
      const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && ranges.length < 2000) {
        const text = walker.currentNode.data.toLowerCase();
        for (let at = text.indexOf(query); at >= 0 && ranges.length < 2000; at = text.indexOf(query, at + query.length)) {
          const range = new Range();
          range.setStart(walker.currentNode, at);
          range.setEnd(walker.currentNode, Math.min(at + query.length, walker.currentNode.length));
          ranges.push(range);
        }
      }
    }
    if (ranges.length) CSS.highlights.set("found", new Highlight(...ranges));
  };

  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 150);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && event.target !== input) {
      event.preventDefault();
      input.focus();
      input.select();
    } else if (event.key === "Escape" && event.target === input && input.value) {
      event.preventDefault();
      input.value = "";
      search();
    }
  });
  goTo();
})();
