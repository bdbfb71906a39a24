"use strict";
// Interactive parts of the page: values of charts, sorting of tables, copying of commands.
// The page shows all numbers without it.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const create = (name, attributes, text = "") => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
};

// --- copying of commands ---
const copy = async (button, text) => {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(button.nextElementSibling);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
};
for (const pre of all("pre")) {
  const button = create("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", () => copy(button, pre.textContent.trimEnd()));
  pre.before(button);
}

// --- sorting of tables ---
const units = new Map([
  ["us", 1e-6], ["ms", 1e-3], ["s", 1], ["min", 60], ["h", 3600],
  ...["kB", "MB", "GB", "TB"].map((unit, at) => [unit, 1024 ** (at + 1)]),
  ...["KiB", "MiB", "GiB", "TiB"].map((unit, at) => [unit, 1024 ** (at + 1)]),
  ["million", 1e6], ["billion", 1e9],
]);
// A date is sorted as text.
const numberOf = (text) => {
  const match = text.replaceAll(",", "").match(/^[^A-Za-z]*?(-?\d+(\.\d+)?(?:e[-+]\d+)?) ?([A-Za-z]+)?/);
  if (!match || /^\d{4}-\d\d-\d\d/.test(text)) return null;
  return Number(match[1]) * (units.get(match[3]) ?? 1);
};
const value = (row, column) => {
  const cell = row.cells[column];
  return (cell.firstChild?.nodeType === 3 ? cell.firstChild.textContent : cell.textContent).trim();
};
const order = (column, falling) => (one, other) => {
  const [a, b] = [value(one, column), value(other, column)];
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x === null && y === null) return (falling ? -1 : 1) * a.localeCompare(b);
  if (x === null || y === null) return x === null ? 1 : -1;
  return falling ? y - x : x - y;
};
for (const table of all("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 3) continue;
  for (const head of all("thead th", table)) {
    const button = create("button", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const each of all("thead th", table)) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      body.append(...[...body.rows].sort(order(head.cellIndex, falling)));
    });
  }
}

// --- values of charts ---
const tip = create("div", { id: "tip", role: "status", hidden: "" });
document.body.append(tip);
const show = (lines, x, y) => {
  tip.replaceChildren(...lines.map((line) => create("div", {}, line)));
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${y + height + 18 > innerHeight ? Math.max(4, y - height - 12) : y + 14}px`;
};
const middle = (mark) => {
  const box = mark.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
};
const marksOf = (svg) => all("[data-description]", svg);
const showMark = (svg, mark, at = middle(mark)) => {
  all(".near", svg).forEach((each) => each.classList.remove("near"));
  mark.classList.add("near");
  show(mark.dataset.description.split(" · "), ...at);
};
// The table of stacked charts has a row for each place of their common axis.
const rowsOf = (svg) => [...svg.closest("figure").querySelector("tbody").rows];
const showRow = (svg, row, y) => {
  const [left, right, low, high] = svg.dataset.plot.split(" ").map(Number);
  const [, , wide, tall] = svg.getAttribute("viewBox").split(" ").map(Number);
  const x = left + ((Number(value(row, 0)) - low) / (high - low)) * (right - left);
  let line = svg.querySelector(".cross");
  if (!line) {
    line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("class", "cross");
    svg.append(line);
  }
  line.setAttribute("d", `M${x},0V${tall}`);
  const names = all("thead th", row.closest("table")).map((head) => head.textContent);
  const box = svg.getBoundingClientRect();
  const lines = names.map((name, column) => `${name}: ${row.cells[column].textContent}`);
  show(lines, box.left + (x / wide) * box.width, y);
};
const rowAt = (svg, clientX) => {
  const [left, right, low, high] = svg.dataset.plot.split(" ").map(Number);
  const [box, wide] = [svg.getBoundingClientRect(), Number(svg.getAttribute("viewBox").split(" ")[2])];
  const place = low + ((((clientX - box.left) / box.width) * wide - left) / (right - left)) * (high - low);
  const away = (row) => Math.abs(Number(value(row, 0)) - place);
  return rowsOf(svg).reduce((best, row) => (away(row) < away(best) ? row : best));
};
const hide = (svg) => {
  tip.hidden = true;
  svg.querySelector(".cross")?.remove();
  all(".near", svg).forEach((each) => each.classList.remove("near"));
};
for (const svg of all("figure > svg")) {
  const byRow = "plot" in svg.dataset && rowsOf(svg).length > 1;
  if (!byRow && !svg.querySelector("[data-description]")) continue;
  let at = -1;
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("pointermove", (event) => {
    if (byRow) return showRow(svg, rowAt(svg, event.clientX), event.clientY);
    const far = (mark) => {
      const [x, y] = middle(mark);
      return Math.hypot(x - event.clientX, y - event.clientY);
    };
    const inside = event.target.closest("[data-description]");
    const mark = inside ?? marksOf(svg).reduce((a, b) => (a && far(a) <= far(b) ? a : b), null);
    return mark && (inside || far(mark) < 40) ? showMark(svg, mark, [event.clientX, event.clientY]) : hide(svg);
  });
  svg.addEventListener("pointerleave", () => hide(svg));
  svg.addEventListener("blur", () => hide(svg));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide(svg);
    if (!step) return;
    event.preventDefault();
    const stops = byRow ? rowsOf(svg) : marksOf(svg);
    at = (at + step + stops.length) % stops.length;
    if (byRow) showRow(svg, stops[at], svg.getBoundingClientRect().top + 20);
    else showMark(svg, stops[at]);
  });
}
