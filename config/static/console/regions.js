// For a screen reader and a keyboard: names of scroll boxes, and a way into those that a finger could scroll.
const nameRegions = () => {
  // SimpleBar names all of its boxes alike.
  document.querySelectorAll(".simplebar-content-wrapper[role=region]").forEach((box) => {
    if (box.closest("nav")) {
      box.removeAttribute("role");
      box.removeAttribute("aria-label");
    } else {
      box.setAttribute("aria-label", document.querySelector("h1")?.innerText.trim() || "List");
    }
  });
  document.querySelectorAll(".console-scroll, #content pre").forEach((box) => {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  });
  document.querySelectorAll("span.help-tooltip[aria-label]").forEach((icon) => icon.setAttribute("role", "img"));
};
window.addEventListener("load", () => setTimeout(nameRegions)); // after those that make the boxes
document.addEventListener("htmx:afterSettle", nameRegions);
document.addEventListener("toggle", nameRegions, true);
