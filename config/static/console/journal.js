// The journal of a run: an entry that is chosen is shown beside the others, and the arrow keys lead from one to the next. Without this
// script the link of an entry leads to the page that shows it.
(() => {
  const links = () => [...document.querySelectorAll("[data-entry]")];
  let newest = 0; // an answer that comes after that of a later choice is of no use
  const choose = async (link) => {
    const mine = ++newest;
    const answer = await fetch(link.dataset.entry, { headers: { "HX-Request": "true" }, redirect: "manual" });
    const content = await answer.text();
    if (mine !== newest) return;
    const pane = document.querySelector("#journal-entry");
    if (!answer.ok || !pane) throw new Error(answer.status);
    links().forEach((one) => one.removeAttribute("aria-current"));
    link.setAttribute("aria-current", "true");
    pane.innerHTML = content;
    pane.classList.remove("waterfall-nothing");
    pane.scrollTop = 0;
    link.closest(".waterfall-entry").after(pane);
    history.replaceState(history.state, "", link.href.split("#")[0]);
    follow(new URL(link.href).searchParams.get("entry"));
    window.htmx?.process(pane);
    for (const name of ["htmx:afterSwap", "htmx:afterSettle"]) pane.dispatchEvent(new CustomEvent(name, { bubbles: true }));
  };
  // The live part of the page is requested with the same entry.
  const follow = (key) => {
    const part = document.querySelector("[data-live]");
    if (!part?.dataset.live) return;
    const url = new URL(part.dataset.live, location.href);
    url.searchParams.set("entry", key);
    part.dataset.live = url.pathname + url.search;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-entry]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    choose(link).catch(() => location.assign(link.href));
  });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.matches("[data-entry]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = links();
    const next = all[all.indexOf(event.target) + step];
    event.preventDefault();
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  });
})();
