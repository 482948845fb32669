// Days and hours are those of the browser's zone: it says so in a cookie, and asks again once if the page has another.
(() => {
  const shown = document.currentScript.dataset.zone;
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const said = document.cookie.split("; ").includes(`zone=${mine}`);
  if (!mine || mine === shown || said) return;
  document.cookie = `zone=${mine}; path=/admin/; max-age=31536000; samesite=lax`;
  if (document.cookie.includes(`zone=${mine}`)) location.reload();
})();
