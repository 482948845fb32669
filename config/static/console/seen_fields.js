// A click on a field that recent events have inserts it into the filter, the key or the input mapping: where the person last wrote.
(() => {
  const targets = ["filter", "key", "input"];
  const used = new Set();
  const area = (panel, name) => panel.closest("form").elements[name];
  const choose = (panel, name) => panel.querySelectorAll("[data-into]").forEach((one) => {
    one.setAttribute("aria-pressed", String(one.dataset.into === name));
  });
  const chosen = (panel) => panel.querySelector("[data-into][aria-pressed=true]").dataset.into;
  const told = (field, at) => {
    field.closest("details")?.setAttribute("open", "");
    field.focus();
    field.setSelectionRange(at, at);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const put = (field, text) => {
    const begin = used.has(field) ? field.selectionStart : field.value.length;
    const end = used.has(field) ? field.selectionEnd : field.value.length;
    field.value = field.value.slice(0, begin) + text + field.value.slice(end);
    told(field, begin + text.length);
  };
  const intoFilter = (field, data) => {
    const before = field.value.slice(0, used.has(field) ? field.selectionStart : field.value.length).trimEnd();
    if (!before || /(&&|\|\||[(!?:,])$/.test(before)) put(field, (before && !/[(!]$/.test(before) ? " " : "") + data.filter);
    else if (/[=<>+\-*/%[]$/.test(before)) put(field, ` ${data.path}`);
    else put(field, ` && ${data.filter}`);
  };
  const intoInput = (field, data) => {
    let mapping = null;
    try { mapping = JSON.parse(field.value.trim() || "{}"); } catch { /* the person is writing */ }
    const name = data.path.match(/[A-Za-z_]\w*(?=[^A-Za-z_]*$)/)?.[0] ?? "value";
    if (mapping === null || typeof mapping !== "object" || Array.isArray(mapping)) {
      put(field, `${JSON.stringify(name)}: ${JSON.stringify(data.input)}`);
      return;
    }
    let free = name;
    for (let number = 2; free in mapping; number += 1) free = `${name}_${number}`;
    field.value = JSON.stringify({ ...mapping, [free]: data.input }, null, 2);
    told(field, field.value.length);
  };
  const addType = (field, type) => {
    const lines = field.value.split(/[\s,]+/).filter(Boolean);
    if (!lines.includes(type)) field.value = [...lines, type].join("\n");
    told(field, field.value.length);
  };
  document.addEventListener("focusin", (event) => {
    const name = event.target.name;
    if (!targets.includes(name)) return;
    used.add(event.target);
    document.querySelectorAll("[data-seen]").forEach((panel) => choose(panel, name));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-seen] button");
    if (!button) return;
    const panel = button.closest("[data-seen]");
    if (button.dataset.into) choose(panel, button.dataset.into);
    else if (button.dataset.type) addType(area(panel, "types"), button.dataset.type);
    else if (button.dataset.path) {
      const name = chosen(panel);
      const field = area(panel, name);
      if (name === "filter") intoFilter(field, button.dataset);
      else if (name === "key") put(field, button.dataset.path);
      else intoInput(field, button.dataset);
    }
  });
})();
