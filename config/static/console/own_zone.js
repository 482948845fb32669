// A new schedule begins with the zone of the person who creates it.
document.querySelectorAll("select[data-own-zone]").forEach((select) => {
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if ([...select.options].some((option) => option.value === mine)) select.value = mine;
});
