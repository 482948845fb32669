// The address of a new source has the name that the person enters.
(() => {
  const show = () => {
    const name = document.querySelector("[name=slug]").value.trim() || "name";
    document.querySelectorAll("[data-name]").forEach((one) => { one.textContent = name; });
  };
  document.addEventListener("input", (event) => { if (event.target.name === "slug") show(); });
  show();
})();
