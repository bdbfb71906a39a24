"use strict";
// The second checked row compares the two: the first against the second.
const checked = [];
for (const box of document.querySelectorAll("input[name=run]")) {
  box.checked = false;
  box.addEventListener("change", () => {
    const at = checked.indexOf(box.value);
    if (at >= 0) checked.splice(at, 1);
    if (box.checked) checked.push(box.value);
    if (checked.length < 2) return;
    location.href = `/compare?${checked.map((id) => `run=${encodeURIComponent(id)}`).join("&")}`;
  });
}
