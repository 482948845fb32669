// A new schedule begins with the zone of whoever makes it.
document.querySelectorAll("select[data-own-zone]").forEach((select) => {
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if ([...select.options].some((option) => option.value === mine)) select.value = mine;
});
