// A part of a page that stays true: it asks for itself while it is seen, and changes what differs. Focus, scroll, and what is opened stay.
(() => {
  const EVERY = 10_000;
  const SETTLING = 600;
  const keyed = (node) => node.nodeType === Node.ELEMENT_NODE && node.id;

  const morphAttributes = (old, fresh) => {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS") && name !== "tabindex") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  };

  const removeUntil = (at, end) => {
    while (at && at !== end) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
    return end;
  };

  const morph = (old, fresh) => {
    // moments.js has shown it in the zone of the browser.
    if (old.nodeName === "TIME" && old.dateTime === fresh.dateTime) return;
    morphAttributes(old, fresh);
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const moved = keyed(wanted) && [...old.children].find((child) => child.id === wanted.id);
      // What stood before it is gone: it keeps its element, and with it the focus. No row takes over the buttons of another one.
      if (moved && at && moved !== at && at.compareDocumentPosition(moved) & Node.DOCUMENT_POSITION_FOLLOWING) at = removeUntil(at, moved);
      if (at && at.nodeType === wanted.nodeType && at.nodeName === wanted.nodeName && keyed(at) === keyed(wanted)) {
        if (at.nodeType === Node.ELEMENT_NODE) morph(at, wanted);
        else if (at.data !== wanted.data) at.data = wanted.data;
        at = at.nextSibling;
      } else {
        old.insertBefore(wanted, at);
      }
    }
    removeUntil(at, null);
  };

  const look = async (part) => {
    // A button must not become another one below a pointer.
    if (document.visibilityState !== "visible" || part.querySelector("button:hover")) return;
    const headers = { "If-None-Match": part.dataset.etag, "X-Requested-With": "XMLHttpRequest" };
    const answer = await fetch(part.dataset.live, { headers, credentials: "same-origin", redirect: "error" });
    if (answer.status === 304) return;
    if (answer.status !== 200) throw new Error(`${answer.status}`);
    const fresh = part.cloneNode(false);
    fresh.innerHTML = await answer.text();
    fresh.dataset.etag = answer.headers.get("ETag") || "";
    morph(part, fresh);
    part.classList.add("live-settling"); // nor below a finger
    setTimeout(() => part.classList.remove("live-settling"), SETTLING);
    part.dispatchEvent(new CustomEvent("htmx:afterSwap", { bubbles: true })); // moments.js
    part.dispatchEvent(new CustomEvent("htmx:afterSettle", { bubbles: true })); // regions.js
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-live]").forEach((part) => {
      let isAsking = false;
      const ask = async () => {
        if (isAsking) return;
        isAsking = true;
        const stale = document.getElementById(part.dataset.stale);
        await look(part).then(() => { stale.hidden = true; }, () => { stale.hidden = false; });
        isAsking = false;
      };
      setInterval(ask, Number(part.dataset.every) || EVERY);
      document.addEventListener("visibilitychange", ask);
    });
  });
})();
