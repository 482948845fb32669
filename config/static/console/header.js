// The header of every page: the search, and whether what the page shows is kept up to date.
document.addEventListener("DOMContentLoaded", () => {
  const PAUSE = 200, PATIENCE = 10_000; // milliseconds: after the last letter; for an answer
  const dialog = document.getElementById("find");
  const openers = document.querySelectorAll("[data-find]");
  if (!dialog || !openers.length) return;
  const box = dialog.querySelector("input"), found = dialog.querySelector("[data-find-found]");
  const status = dialog.querySelector("[data-find-status]"), url = dialog.querySelector("form").action;
  const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
  let timer = null, asking = null, shown = null;

  const hits = () => [...found.querySelectorAll("a")];
  const count = () => {
    const number = hits().length;
    status.textContent = number ? `${number} hit${number === 1 ? "" : "s"}` : "";
  };
  const ask = async () => {
    const text = box.value.trim();
    asking?.abort(); // its hits must not come below another text
    asking = null;
    if (text === shown) return count();
    const mine = asking = new AbortController();
    const late = setTimeout(() => mine.abort(), PATIENCE);
    status.textContent = "Searching …";
    try {
      const answer = await fetch(`${url}?q=${encodeURIComponent(text)}`, { headers: { "X-Part": "1" }, signal: mine.signal, redirect: "manual" });
      if (!answer.ok) throw new Error(answer.statusText);
      const content = await answer.text();
      if (mine !== asking) return;
      found.innerHTML = content;
      shown = text;
      count();
    } catch (error) {
      if (mine === asking) status.textContent = "The search has not answered. Press Enter to try it on a page of its own.";
    } finally {
      clearTimeout(late);
    }
  };
  const open = () => {
    if (dialog.open) return;
    dialog.showModal();
    box.select();
    ask();
  };
  openers.forEach((opener) => {
    opener.querySelectorAll("kbd").forEach((key) => { key.textContent = isMac ? "⌘K" : "Ctrl K"; });
    opener.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      open();
    });
  });
  dialog.querySelector("[data-find-close]").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // beside it
  box.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, PAUSE); });
  dialog.addEventListener("keydown", (event) => {
    const all = hits(), at = all.indexOf(document.activeElement);
    if (event.key === "ArrowDown") (all[at + 1] ?? all[at])?.focus();
    else if (event.key === "ArrowUp") (at > 0 ? all[at - 1] : box).focus();
    else if (event.key === "Enter" && event.target === box && box.value.trim() === shown && all.length) all[0].click();
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || event.altKey || event.shiftKey || !(isMac ? event.metaKey : event.ctrlKey)) return;
    event.preventDefault();
    if (dialog.open) dialog.close();
    else open();
  });
});
// The page says that it is live after an answer, and no longer when answers fail or do not come.
document.addEventListener("DOMContentLoaded", () => {
  const state = document.querySelector("[data-live-state]");
  if (!state) return;
  const LATE = 25_000; // milliseconds without an answer; the longest pause between two requests is shorter
  let last = 0, timer = null;
  const show = (name, words) => {
    if (state.dataset.liveState === name) return;
    state.dataset.liveState = name;
    state.textContent = words;
    state.hidden = !name;
  };
  const clock = (at) => new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const late = () => { if (!document.hidden) show("stale", last ? `not live since ${clock(last)}` : "not live"); };
  const wait = () => { clearTimeout(timer); timer = setTimeout(late, LATE); };
  document.addEventListener("live", ({ detail }) => {
    clearTimeout(timer);
    if (detail === "final") return show("", "");
    if (detail === "stale") return late();
    last = Date.now();
    show("live", "live");
    wait();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && state.dataset.liveState) wait(); });
  // Parts of pages that htmx asks for again and again.
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (!detail.elt.getAttribute("hx-trigger")?.startsWith("every")) return;
    document.dispatchEvent(new CustomEvent("live", { detail: detail.successful ? "live" : "stale" }));
  });
  document.addEventListener("htmx:afterSettle", () => { // no part is left that does
    if (state.dataset.liveState && !document.querySelector("[hx-trigger^=every], [data-live]")) show("", "");
  });
});
