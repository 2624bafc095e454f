// Draws the curves of the overview with uPlot in place of the pictures of the server, and has them follow the application:
// the server says by an event that there are further points.
"use strict";

{
  const section = document.getElementById("history");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const HEIGHT = 128;
  let points = null; // as the server sends them: a list for each figure
  let plots = [];
  let loading = false;
  let missed = false;

  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const UNITS = {
    rate: (value) => `${compact.format(value)}/s`,
    records: (value) => compact.format(value),
    ms: (value) => (value < 1000 ? `${Math.round(value)} ms` : `${compact.format(value / 1000)} s`),
  };

  const clock = new Intl.DateTimeFormat("en", { timeStyle: "medium", hour12: false, timeZone: "UTC" }); // as the pages

  function clockTimes(plot, times, axis, space, step) {
    return times.map((time) => clock.format(time).slice(0, step < 60_000 ? 8 : 5));
  }

  async function follow() {
    if (loading) {
      missed = true;
      return;
    }
    loading = true;
    try {
      do {
        missed = false;
        const last = points?.times_ms.at(-1);
        const after = last === undefined ? "" : `&after=${last}`;
        const answer = await fetch(section.querySelector("[data-history]").dataset.history + after);
        if (answer.ok) {
          add(await answer.json(), last);
        }
      } while (missed);
    } catch {
      // the server has gone: the note at the end of the page says so
    } finally {
      loading = false;
    }
    draw();
  }

  function add(newer, last) {
    if (last === undefined || newer.times_ms[0] <= last) { // the clock was set back
      points = newer;
      return;
    }
    const lists = Object.keys(points).filter((name) => Array.isArray(points[name]));
    lists.forEach((name) => points[name].push(...newer[name]));
    const kept = points.times_ms.at(-1) - points.kept_ms;
    const old = points.times_ms.findIndex((time) => time > kept);
    lists.forEach((name) => points[name].splice(0, old));
  }

  function draw() {
    if (points === null || points.times_ms.length === 0) {
      return;
    }
    if (plots.length === 0) {
      plots = [...section.querySelectorAll(".chart")].map(plotted);
    } else {
      plots.forEach(({ plot, figures }) => plot.setData(columns(figures)));
    }
  }

  function columns(figures) {
    return [points.times_ms, ...figures.map((figure) => points[figure])];
  }

  function plotted(chart) {
    const figures = chart.dataset.figures.split(" ");
    const names = chart.dataset.names.split(",");
    const text = UNITS[chart.dataset.unit];
    const box = chart.querySelector(".plot");
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", box.querySelector("svg").getAttribute("aria-label"));
    const axis = { stroke: () => colour("--quiet"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
    const options = {
      width: box.clientWidth,
      height: HEIGHT,
      ms: 1,
      scales: { y: { range: (plot, least, most) => [0, most > 0 ? most * 1.05 : 1] } },
      tzDate: (time) => uPlot.tzDate(new Date(time), "UTC"),
      axes: [{ ...axis, size: 30, values: clockTimes }, { ...axis, size: 64, values: (plot, ticks) => ticks.map(text) }],
      series: [
        { label: "UTC", value: (plot, time) => (time == null ? "-" : clock.format(time)) },
        ...figures.map((figure, place) => ({
          label: names[place],
          stroke: () => colour(`--curve-${place}`),
          width: 1.5,
          value: (plot, value) => (value == null ? "-" : text(value)),
        })),
      ],
      cursor: { drag: { x: false, y: false }, sync: { key: "history" } },
      legend: { markers: { show: false } },
    };
    box.replaceChildren();
    return { plot: new uPlot(options, columns(figures), box), figures, box };
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name);
  }

  // The words of each chart are replaced, the plots stay.
  section.addEventListener("section", (event) => {
    const made = event.detail;
    if (plots.length > 0) {
      event.preventDefault();
      const old = section.querySelectorAll(".choices, .legend");
      made.querySelectorAll(".choices, .legend").forEach((each, place) => old[place].replaceChildren(...each.childNodes));
      const pictures = made.querySelectorAll("svg");
      plots.forEach(({ box }, place) => box.setAttribute("aria-label", pictures[place].getAttribute("aria-label")));
    }
    follow();
  });

  dark.addEventListener("change", () => plots.forEach(({ plot }) => plot.redraw()));
  addEventListener("resize", () => {
    plots.forEach(({ plot, box }) => plot.setSize({ width: box.clientWidth, height: HEIGHT }));
  });
  follow();
}
