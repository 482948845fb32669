// A live part of a page: it is requested again while it is seen, and only what has changed is changed, so that focus,
// selection, open details and scroll positions stay. An answer that says that the part is final ends this.
(() => {
  const FIRST = 2000, LONGEST = 10_000; // milliseconds between two requests; longer while nothing changes
  const PATIENCE = 10_000; // milliseconds for an answer
  const SETTLING = 600; // milliseconds in which a change takes no press: a button must not become another one below a finger
  const STAYS = new Set(["open", "tabindex", "role", "aria-label"]); // attributes that people and scripts of the page have set
  const part = document.querySelector("[data-live]");
  if (!part || !part.dataset.live) return;
  const stale = document.getElementById(part.dataset.stale ?? "");
  const first = Number(part.dataset.every) || FIRST;
  let pause = first, timer = null, isAsking = false, isFinal = false;

  const say = (detail) => document.dispatchEvent(new CustomEvent("live", { detail })); // to the header

  // What has the same name keeps its element, and with it the focus; no row takes over the buttons of another one.
  const nameOf = (node) => {
    if (node.nodeType !== 1) return node.nodeName;
    return node.id ? `${node.nodeName} #${node.id}` : `${node.nodeName} ${node.dataset.key ?? ""} ${node.className}`;
  };
  const change = (old, now) => {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
      return;
    }
    if (old.nodeName === "TIME" && old.dateTime === now.dateTime) return; // it stands there in the reader's zone
    if (old.nodeName === "TIME") old.removeAttribute("data-local");
    for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !STAYS.has(name)) old.removeAttribute(name);
    for (const { name, value } of now.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    changeChildren(old, now);
  };
  const changeChildren = (old, now) => {
    let next = old.firstChild;
    for (const child of [...now.childNodes]) {
      let same = next;
      while (same && nameOf(same) !== nameOf(child)) same = same.nextSibling;
      if (!same) {
        old.insertBefore(document.importNode(child, true), next);
        continue;
      }
      while (next !== same) { // what stood before it is gone
        const gone = next;
        next = next.nextSibling;
        gone.remove();
      }
      change(same, child);
      next = same.nextSibling;
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  };
  const settle = () => {
    part.classList.add("live-settling");
    setTimeout(() => part.classList.remove("live-settling"), SETTLING);
    window.htmx?.process(part);
    for (const name of ["htmx:afterSwap", "htmx:afterSettle"]) part.dispatchEvent(new CustomEvent(name, { bubbles: true }));
  };
  const parse = (text) => new DOMParser().parseFromString(text, "text/html");

  // The rest of a page whose part is final: other buttons are possible, and sections below it have more rows.
  const finish = async () => {
    isFinal = true;
    const answer = await fetch(location.href, { redirect: "manual" });
    if (!answer.ok) return;
    const page = parse(await answer.text());
    const whole = document.querySelector("#content-main"), now = page.querySelector("#content-main");
    if (whole && now) changeChildren(whole, now);
    const buttons = "main [x-data*=showActions] > ul";
    const shown = document.querySelector(buttons), possible = page.querySelector(buttons);
    if (shown && possible && !shown.contains(document.activeElement)) {
      shown.replaceChildren(...possible.children);
      window.htmx?.process(shown);
    }
    settle();
  };
  const ask = async () => {
    if (part.querySelector("button:hover")) return; // it must not become another one below a pointer
    const headers = { "If-None-Match": part.dataset.tag, "X-Requested-With": "XMLHttpRequest" };
    const address = part.dataset.live;
    const answer = await fetch(address, { headers, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(PATIENCE) });
    if (address !== part.dataset.live) return; // another entry has been requested since
    say(answer.ok || answer.status === 304 ? "live" : "stale");
    if (stale) stale.hidden = answer.ok || answer.status === 304;
    if (answer.status === 304) {
      pause = Math.min(pause * 1.25, LONGEST);
    } else if (answer.ok) {
      pause = first;
      const now = parse(await answer.text()).body;
      part.dataset.tag = answer.headers.get("ETag") ?? "";
      changeChildren(part, now);
      settle();
      if (answer.headers.has("X-Final")) {
        say("final");
        await finish();
      }
    } else if (answer.status < 500) {
      isFinal = true; // logged out, or the row is gone
    } else {
      pause = LONGEST;
    }
  };
  const later = () => {
    clearTimeout(timer);
    if (!isFinal && !document.hidden) timer = setTimeout(again, pause);
  };
  const again = async () => {
    if (isAsking || isFinal || document.hidden) return;
    isAsking = true;
    try {
      await ask();
    } catch {
      pause = LONGEST; // the server is away
      say("stale");
      if (stale) stale.hidden = false;
    } finally {
      isAsking = false;
    }
    later();
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : again()));
  later();
})();
