// Keys of the inbox: j and k lead from one entry to the next, a and d to its buttons, where Enter presses. No key decides by itself, a field
// that is typed in gets its letters, and the button above the list switches them off.
(() => {
  const entries = () => [...document.querySelectorAll("[data-waiting]")];
  const here = () => document.activeElement?.closest("[data-waiting]");
  const isOn = () => localStorage.inboxKeys !== "off";
  const button = document.querySelector("[data-inbox-keys]");
  const show = () => {
    button.setAttribute("aria-pressed", String(isOn()));
    document.querySelector("[data-inbox-help]").hidden = !isOn();
  };
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => { localStorage.inboxKeys = isOn() ? "off" : "on"; show(); });
    show();
  }
  const go = (step) => {
    const all = entries();
    const at = all.indexOf(here());
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (!isOn() || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select, [contenteditable]") || event.target.closest("#modal-content")) return;
    if (event.key === "j") go(1);
    else if (event.key === "k") go(-1);
    else if (event.key === "a" || event.key === "d") here()?.querySelector(`[data-key=${event.key}]`)?.focus();
    else return;
    event.preventDefault();
  });
})();
