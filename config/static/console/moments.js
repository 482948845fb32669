// Times come in UTC; people read them in their own zone. The title keeps UTC.
(() => {
  // Times that are typed without a zone are read in the zone that times are shown in: the server learns it from a cookie.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const home = location.pathname.replace(/(^|\/)admin\/.*$/, ""); // the console may be below a path
  if (zone && home !== location.pathname) document.cookie = `zone=${zone}; path=${home}/admin/; max-age=31536000; samesite=lax`;
  const pad = (number) => String(number).padStart(2, "0");
  const show = (time) => {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime()) || time.dataset.local) return;
    const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
    const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
    const isToday = at.toDateString() === new Date().toDateString();
    const isNear = Math.abs(at - Date.now()) < 6 * 86400e3;
    const weekday = at.toLocaleDateString("en", { weekday: "long" });
    time.textContent = "appointment" in time.dataset
      ? `${isToday ? "today" : isNear ? weekday : day} ${clock.slice(0, 5)}`
      : isToday ? clock : `${day} ${clock}`;
    time.title = `${time.title} · shown in ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
    time.dataset.local = "1";
  };
  const showAll = (root) => root.querySelectorAll("time[datetime]").forEach(show);
  document.addEventListener("DOMContentLoaded", () => {
    showAll(document);
    if (zone) document.querySelectorAll("[data-zone-shown]").forEach((named) => { named.textContent = zone; });
  });
  document.addEventListener("htmx:afterSwap", (event) => showAll(event.target));
})();
