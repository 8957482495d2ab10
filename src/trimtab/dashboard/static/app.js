// What a page does while it is open: shows what changes, filters lists, shows who held what at the slider's time. Everything else is plain HTML.
"use strict";

const live = document.getElementById("live");
const link = document.getElementById("link");
let source = null;
let isFetching = false;
let isStale = false;

function say(text) {
  if (link && link.textContent !== text) link.textContent = text;
}

// What the keyboard is at, in words that find it again in the next version of the part.
function place(one) {
  if (!live.contains(one)) return "";
  if (one.id) return `#${CSS.escape(one.id)}`;
  if (one.matches("a[href]")) return `a[href="${CSS.escape(one.getAttribute("href"))}"]`;
  if (one.matches("details[id] > summary")) return `#${CSS.escape(one.parentElement.id)} > summary`;
  return "";
}

// The server has escaped everything in the part, and the page's policy runs no script in it.
function swap(text) {
  const opened = new Map([...live.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
  const scrolled = [...live.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  const focused = place(document.activeElement);
  const filters = [...live.querySelectorAll("input[data-filter]")].map((one) => one.value);
  const drawn = keepCharts(live);
  live.innerHTML = text;
  restoreCharts(live, drawn);
  live.querySelectorAll("details[id]").forEach((one) => { if (opened.has(one.id)) one.open = opened.get(one.id); });
  live.querySelectorAll(".wide").forEach((one, place) => { one.scrollLeft = scrolled[place] || 0; });
  live.querySelectorAll("input[data-filter]").forEach((one, place) => { one.value = filters[place] || ""; filter(one); });
  const again = focused && live.querySelector(focused);
  if (again) again.focus({ preventScroll: true });
}

async function refresh() {
  if (isFetching) { isStale = true; return; }
  isFetching = true;
  try {
    const answer = await fetch(live.dataset.part, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") { location.reload(); return; }
    if (answer.ok) { swap(await answer.text()); say("live"); }
  } catch {
    say("the dashboard does not answer");
  } finally {
    isFetching = false;
    if (isStale) { isStale = false; refresh(); }
  }
}

function listen() {
  if (source || !live) return;
  source = new EventSource(live.dataset.events);
  source.addEventListener("changed", refresh);
  source.addEventListener("error", () => say("not connected; trying again"));
}

// A browser has few connections for one place: pages that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && source) { source.close(); source = null; } else { listen(); }
});
window.addEventListener("pagehide", () => { if (source) { source.close(); source = null; } });
window.addEventListener("pageshow", listen);

function filter(input) {
  const rows = document.querySelectorAll(`#${input.dataset.filter} tbody tr`);
  const wanted = input.value.toLowerCase();
  rows.forEach((row) => { row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted); });
}

// Who held what at the slider's time. One question is on its way at a time; the last wish is asked when it is back.
const scrubbing = document.getElementById("scrub-form");
let wanted = null;
let isAsking = false;

async function scrub(at) {
  wanted = at;
  if (isAsking) return;
  isAsking = true;
  try {
    while (wanted !== null) {
      const asked = wanted;
      wanted = null;
      const answer = await fetch(`${scrubbing.dataset.part}&at_ms=${encodeURIComponent(asked)}`, { redirect: "manual" });
      if (answer.type === "opaqueredirect") { location.reload(); return; }
      if (answer.ok) document.getElementById("held-then").innerHTML = await answer.text();
    }
  } catch {
    say("the dashboard does not answer");
  } finally {
    isAsking = false;
  }
}

function moveTo(at) {
  const slider = document.getElementById("at");
  slider.value = at;
  document.getElementById("at-text").textContent = new Date(Number(slider.value)).toLocaleString();
  scrub(slider.value);
}

function step(direction) {
  const at = Number(document.getElementById("at").value);
  const times = [...document.querySelectorAll("#changes option")].map((one) => Number(one.value));
  const next = direction < 0 ? times.filter((one) => one < at).pop() : times.find((one) => one > at);
  if (next !== undefined) moveTo(next);
}

if (scrubbing) {
  document.getElementById("earlier").addEventListener("click", () => step(-1));
  document.getElementById("later").addEventListener("click", () => step(1));
  scrubbing.addEventListener("submit", (event) => { event.preventDefault(); moveTo(document.getElementById("at").value); });
}

document.addEventListener("input", (event) => {
  if (event.target.matches("input[data-filter]")) filter(event.target);
  if (event.target.id === "at") moveTo(event.target.value);
});
drawCharts(document);
listen();
