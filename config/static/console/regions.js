// For a screen reader and a keyboard: names of scroll boxes, and a way into those that a finger could scroll.
const nameRegions = () => {
  // Without the names of the pictures of icons.
  const heading = document.querySelector("h1")?.cloneNode(true);
  heading?.querySelectorAll(".material-symbols-outlined").forEach((icon) => icon.replaceWith(" "));
  // SimpleBar names all of its boxes alike.
  document.querySelectorAll(".simplebar-content-wrapper[role=region]").forEach((box) => {
    if (box.closest("nav")) {
      box.removeAttribute("role");
      box.removeAttribute("aria-label");
    } else {
      box.setAttribute("aria-label", heading?.textContent.trim().replace(/\s+/g, " ") || "List");
    }
  });
  document.querySelectorAll(".console-scroll, #content pre").forEach((box) => {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  });
  // The text of an icon is the name of its picture; three links and buttons have no other.
  const words = { wb_twilight: "Home", search: "Search", more_horiz: "Actions" };
  document.querySelectorAll(".material-symbols-outlined").forEach((icon) => {
    icon.setAttribute("aria-hidden", "true");
    const owner = icon.closest("a, button"), name = words[icon.textContent];
    if (owner && name && owner.innerText.trim() === icon.textContent) owner.setAttribute("aria-label", name);
  });
  document.querySelectorAll("span.help-tooltip[aria-label]").forEach((icon) => icon.setAttribute("role", "img"));
};
window.addEventListener("load", () => setTimeout(nameRegions)); // after those that make the boxes
document.addEventListener("htmx:afterSettle", nameRegions);
document.addEventListener("toggle", nameRegions, true);
// The bars of a chart above a list are one stop of the Tab key: arrows, Home and End lead from bar to bar, Enter opens one.
document.addEventListener("DOMContentLoaded", () => {
  const stopAt = (bars, bar) => bars.forEach((one) => one.setAttribute("tabindex", one === bar ? "0" : "-1"));
  document.querySelectorAll("[data-bars]").forEach((chart) => {
    const bars = [...chart.querySelectorAll("a")];
    stopAt(bars, bars.at(-1));
    chart.addEventListener("keydown", (event) => {
      const at = bars.indexOf(document.activeElement);
      const places = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: bars.length - 1 };
      const next = bars[places[event.key]];
      if (!next) return;
      event.preventDefault();
      stopAt(bars, next);
      next.focus();
    });
  });
});
