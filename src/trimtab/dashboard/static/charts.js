// Charts by Chart.js, from the values that figures carry. A chart stays the same object while the page around it is replaced.
"use strict";

const charts = new WeakMap();
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const memberColour = (place) => colour(`--h${place % 8}`);
const see = (hex, share) => `${hex}${Math.round(share * 255).toString(16).padStart(2, "0")}`;

function axis(more) {
  return { grid: { color: colour("--edge") }, border: { color: colour("--edge") }, ticks: { color: colour("--soft"), maxRotation: 0, autoSkipPadding: 16 }, ...more };
}

function options(scales, tooltip) {
  return {
    animation: false, responsive: true, maintainAspectRatio: false, events: ["mousemove", "mouseout", "touchstart", "touchmove"],
    scales, plugins: { legend: { display: false }, tooltip: { displayColors: false, ...tooltip } },
  };
}

function lineChart(values) {
  const points = values.points.map(([x, y]) => ({ x, y }));
  // A mark lies on the line: at the value that was kept last before it.
  const marks = values.marks.map(([x, text]) => ({ x, y: (points.filter((one) => one.x <= x).pop() || points[0]).y, text }));
  return {
    type: "line",
    data: {
      datasets: [
        { label: "rebalances", data: marks, showLine: false, pointStyle: "triangle", pointRadius: 6, pointHoverRadius: 8, pointBackgroundColor: colour("--h1"), pointBorderColor: colour("--card") },
        { label: values.label, data: points, stepped: "before", borderColor: colour("--link"), backgroundColor: see(colour("--link"), 0.13), borderWidth: 2, pointRadius: 0, pointHoverRadius: 4, fill: true },
      ],
    },
    options: {
      ...options(
        {
          x: axis({ type: "time", time: { tooltipFormat: "yyyy-MM-dd HH:mm:ss", displayFormats: { millisecond: "HH:mm:ss", second: "HH:mm:ss", minute: "HH:mm", hour: "HH:mm" } } }),
          y: axis({ beginAtZero: true, suggestedMax: 1, ticks: { color: colour("--soft"), precision: 0, maxTicksLimit: 5 } }),
        },
        { callbacks: { label: (item) => item.raw.text || `${item.raw.y.toLocaleString()} ${values.label}` } },
      ),
      interaction: { mode: "nearest", axis: "x", intersect: false },
    },
  };
}

// Where two held a queue: the overlaps of the spans of a row.
function overlaps(spans) {
  const found = [];
  spans.forEach(([queue, member, from, until], place) => {
    spans.slice(0, place).forEach(([otherQueue, other, begin, end]) => {
      if (otherQueue === queue && other !== member && Math.min(until, end) > Math.max(from, begin)) found.push([queue, Math.max(from, begin), Math.min(until, end)]);
    });
  });
  return found;
}

const cursor = {
  id: "cursor",
  afterDatasetsDraw(chart) {
    if (chart.moment === undefined) return;
    const x = chart.scales.x.getPixelForValue(chart.moment);
    chart.ctx.save();
    chart.ctx.strokeStyle = colour("--text");
    chart.ctx.lineWidth = 1.5;
    chart.ctx.beginPath();
    chart.ctx.moveTo(x, chart.chartArea.top);
    chart.ctx.lineTo(x, chart.chartArea.bottom);
    chart.ctx.stroke();
    chart.ctx.restore();
  },
};

function holdingsChart(values) {
  const bars = { grouped: false, barPercentage: 1, categoryPercentage: 0.82, minBarLength: 1 };
  const datasets = values.members.map((member, place) => ({
    ...bars, label: member, backgroundColor: memberColour(place), order: 2,
    data: values.spans.filter((one) => one[1] === place).map(([queue, , from, until]) => ({ y: values.queues[queue], x: [from, until] })),
  }));
  const twice = overlaps(values.spans).map(([queue, from, until]) => ({ y: values.queues[queue], x: [from, until] }));
  datasets.push({ ...bars, label: "two at once", backgroundColor: colour("--text"), data: twice, order: 1 });
  return {
    type: "bar",
    data: { labels: values.queues, datasets },
    plugins: [cursor],
    options: {
      indexAxis: "y",
      ...options(
        {
          x: axis({ min: 0, max: values.until_s, title: { display: true, text: "virtual seconds", color: colour("--soft") } }),
          y: axis({ grid: { display: false }, ticks: { color: colour("--soft"), font: { size: 10 }, autoSkip: true } }),
        },
        { callbacks: { label: (item) => `${item.dataset.label}: ${item.raw.x[0].toFixed(1)} s to ${item.raw.x[1].toFixed(1)} s` } },
      ),
    },
  };
}

function configured(figure) {
  const values = JSON.parse(figure.dataset.values);
  return figure.dataset.chart === "line" ? lineChart(values) : holdingsChart(values);
}

function draw(figure) {
  const known = charts.get(figure);
  const config = configured(figure);
  if (known) {
    known.data = config.data;
    known.options = config.options;
    known.update("none");
  } else {
    charts.set(figure, new Chart(figure.querySelector("canvas"), config));
  }
}

function drawCharts(within) {
  within.querySelectorAll("figure[data-chart]").forEach(draw);
}

function chartOf(figure) {
  return charts.get(figure);
}

// Before a part of the page is replaced, and after it.
function keepCharts(within) {
  return new Map([...within.querySelectorAll("figure[data-chart]")].map((one) => [one.id, one]));
}

function restoreCharts(within, kept) {
  within.querySelectorAll("figure[data-chart]").forEach((fresh) => {
    const old = kept.get(fresh.id);
    if (old) {
      kept.delete(fresh.id);
      old.dataset.values = fresh.dataset.values;
      old.querySelector("canvas").setAttribute("aria-label", fresh.querySelector("canvas").getAttribute("aria-label"));
      old.querySelector("figcaption").textContent = fresh.querySelector("figcaption").textContent;
      fresh.replaceWith(old);
    }
    draw(old || fresh);
  });
  kept.forEach((gone) => { const chart = charts.get(gone); if (chart) chart.destroy(); });
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts(document));
