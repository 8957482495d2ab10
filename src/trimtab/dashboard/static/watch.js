// Watching a simulation: a time that runs, and who holds what at that time in each of the runs.
"use strict";

const watching = document.getElementById("watch");
const PLAY_S = 12;

// A table of one run. What changes is shown by classes of its cells alone.
class Run {
  constructor(run) {
    this.figure = run.querySelector("figure");
    this.says = run.querySelector(".then");
    this.values = JSON.parse(this.figure.dataset.values);
    const table = document.createElement("table");
    table.className = "matrix";
    this.rows = this.values.queues.map((queue) => {
      const row = table.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = queue;
      row.append(head);
      this.values.members.forEach((member) => {
        const cell = row.insertCell();
        cell.title = member;
        cell.append(document.createElement("i"));
      });
      return row;
    });
    run.querySelector(".then-held").append(table);
  }

  show(at) {
    const held = this.rows.map(() => new Set());
    const isLast = at >= this.values.until_s;
    this.values.spans.forEach(([queue, member, from, until]) => {
      if (from <= at && (at < until || (isLast && until >= this.values.until_s))) held[queue].add(member);
    });
    this.rows.forEach((row, queue) => {
      row.className = held[queue].size ? "" : "is-unheld";
      [...row.cells].slice(1).forEach((cell, member) => {
        const isHeld = held[queue].has(member);
        cell.className = `m${isHeld ? ` held h${member % 8}` : ""}${isHeld && held[queue].size > 1 ? " is-double" : ""}`;
      });
    });
    const nobody = held.filter((one) => one.size === 0).length;
    const twice = held.filter((one) => one.size > 1).length;
    this.says.textContent = `${nobody} held by nobody, ${twice} held twice`;
    const chart = chartOf(this.figure);
    if (chart) { chart.moment = at; chart.draw(); }
  }
}

function watch() {
  const slider = document.getElementById("moment");
  const text = document.getElementById("moment-text");
  const button = document.getElementById("play");
  const runs = [...document.querySelectorAll(".run")].filter((one) => one.querySelector("figure")).map((one) => new Run(one));
  const end = Number(slider.max);
  let isPlaying = false;
  let last = null;

  function show(at) {
    slider.value = at;
    text.textContent = `${Number(at).toFixed(1)} s`;
    runs.forEach((one) => one.show(Number(at)));
  }

  function stop() {
    isPlaying = false;
    button.textContent = "Play";
  }

  function tick(now) {
    if (!isPlaying) return;
    const at = Number(slider.value) + (last === null ? 0 : ((now - last) / 1000) * (end / PLAY_S));
    last = now;
    show(Math.min(at, end));
    if (at >= end) stop(); else requestAnimationFrame(tick);
  }

  button.addEventListener("click", () => {
    if (isPlaying) { stop(); return; }
    if (Number(slider.value) >= end) show(0);
    isPlaying = true;
    last = null;
    button.textContent = "Pause";
    requestAnimationFrame(tick);
  });
  slider.addEventListener("input", () => { stop(); show(slider.value); });
  show(0);
}

if (watching) window.addEventListener("DOMContentLoaded", watch);
