// Days and hours are those of the browser's zone: a cookie holds the zone, and the page reloads once if it was rendered for another.
(() => {
  const shown = document.currentScript.dataset.zone;
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!mine || mine === shown || sessionStorage.zone === mine) return;
  sessionStorage.zone = mine;  // once: the server may not know this zone
  document.cookie = `zone=${mine}; path=/admin/; max-age=31536000; samesite=lax`;
  if (document.cookie.includes(`zone=${mine}`)) location.reload();
})();
