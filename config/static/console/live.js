// A part of a page that stays true: it asks for itself while it is seen, and changes what differs. Focus, scroll, and what is opened stay.
(() => {
  const EVERY = 10_000;
  const keyed = (node) => node.nodeType === Node.ELEMENT_NODE && node.id;

  const morphAttributes = (old, fresh) => {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS") && name !== "tabindex") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  };

  const morph = (old, fresh) => {
    // moments.js has shown it in the zone of the browser.
    if (old.nodeName === "TIME" && old.dateTime === fresh.dateTime) return;
    morphAttributes(old, fresh);
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      if (at && at.nodeType === wanted.nodeType && at.nodeName === wanted.nodeName && keyed(at) === keyed(wanted)) {
        if (at.nodeType === Node.ELEMENT_NODE) morph(at, wanted);
        else if (at.data !== wanted.data) at.data = wanted.data;
        at = at.nextSibling;
      } else {
        old.insertBefore(wanted, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  const look = async (part) => {
    if (document.visibilityState !== "visible") return;
    const headers = { "If-None-Match": part.dataset.etag, "X-Requested-With": "XMLHttpRequest" };
    const answer = await fetch(part.dataset.live, { headers, credentials: "same-origin", redirect: "error" });
    if (answer.status !== 200) return;
    const fresh = part.cloneNode(false);
    fresh.innerHTML = await answer.text();
    fresh.dataset.etag = answer.headers.get("ETag") || "";
    morph(part, fresh);
    part.dispatchEvent(new CustomEvent("htmx:afterSwap", { bubbles: true })); // moments.js
    part.dispatchEvent(new CustomEvent("htmx:afterSettle", { bubbles: true })); // regions.js
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-live]").forEach((part) => {
      let isAsking = false;
      const ask = async () => {
        if (isAsking) return;
        isAsking = true;
        // The next look shows what this one could not.
        await look(part).catch(() => {});
        isAsking = false;
      };
      setInterval(ask, Number(part.dataset.every) || EVERY);
      document.addEventListener("visibilitychange", ask);
    });
  });
})();
