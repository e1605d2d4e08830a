  /* -- curves: points ----------------------------------------------------------------- */

  const CURVES = [
    { name: "loss", title: "Loss", unit: "" },
    { name: "steps_per_s", title: "Rate", unit: "steps/s", isFromZero: true },
    { name: "gpu_percent", title: "GPU use", unit: "%", isFromZero: true, most: 100 },
    { name: "gpu_used_mib", title: "Memory of the fullest GPU", unit: "GiB", isFromZero: true, factor: 1 / GIB },
    { name: "gpu_watts", title: "Power of all GPUs", unit: "kW", isFromZero: true, factor: 1 / 1000 },
    { name: "nodes", title: "Nodes", unit: "", isFromZero: true, isWhole: true },
  ];
  const CUTS_MAX = 24, LOG_RATIO = 100;

  function pointsOfEpochs(job) {
    return epochsOf(job).filter(e => e.formed_ms && e.nodes).flatMap(e =>
      [[e.formed_ms, e.nodes], [e.ended_ms || now(), e.nodes]]);
  }

  /* [time, value], in order */
  function curvePoints(job, curve) {
    const { time_ms: times = [], [curve.name]: values = [] } = curveOf(job), factor = curve.factor || 1;
    const drawable = value => within(value * factor, -1e300, 1e300); /* their differences are numbers */
    const points = curve.name === "nodes" ? pointsOfEpochs(job)
      : values.map((value, i) => [times[i], isNumber(value) ? drawable(value) : NaN]);
    return points.filter(([at]) => isTime(at));
  }

  const isWorthACurve = (curve, points) => points.filter(([, value]) => isNumber(value)).length > 1 &&
    (curve.name !== "nodes" || new Set(points.map(([, value]) => value)).size > 1);

  function wholeRange(job) {
    const times = (curveOf(job).time_ms || []).filter(isTime);
    return [times[0], times[times.length - 1]];
  }

  function shownRange(job) {
    const [from, to] = wholeRange(job);
    if (chosen.range) return chosen.range;
    return chosen.last ? [Math.max(from, to - chosen.last), to] : [from, Math.max(to, from + 1)];
  }

  /* -- curves: axes ------------------------------------------------------------------- */

  /* 1, 2 or 5 times a power of ten, not less than x */
  function roundUp(x) {
    const power = 10 ** Math.floor(Math.log10(x) + 1e-9), digit = x / power;
    return (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
  }

  /* Values that differ by much are shown by their logarithm. */
  function valueAxis(curve, values) {
    const low = curve.isFromZero ? Math.min(0, least(values)) : least(values);
    let high = Math.max(most(values), curve.most || -Infinity);
    if (!curve.isFromZero && low > 1e-300 && high / low >= LOG_RATIO) {
      const from = Math.floor(Math.log10(low) + 1e-9), to = Math.max(Math.ceil(Math.log10(high) - 1e-9), from + 1);
      const each = Math.ceil((to - from) / 5), divisions = Math.ceil((to - from) / each);
      return { low: from, high: from + divisions * each, divisions, isLog: true };
    }
    if (high - low < Math.abs(high) * 1e-6 || high <= low) high = low + Math.max(Math.abs(low) * 0.01, 1e-9);
    const each = roundUp((high - low) / 4), from = Math.floor(low / each + 1e-9) * each;
    const divisions = Math.max(1, Math.ceil((high - from) / each - 1e-9));
    return { low: from, high: from + divisions * each, divisions, isLog: false };
  }

  function axisTicks(axis) {
    return Array.from({ length: axis.divisions + 1 }, (_, i) => {
      const at = axis.low + i * (axis.high - axis.low) / axis.divisions;
      return { y: 100 * (1 - i / axis.divisions), text: figure(axis.isLog ? 10 ** at : Number(at.toPrecision(6))) };
    });
  }

  const heightOf = (axis, value) =>
    100 * (1 - ((axis.isLog ? Math.log10(value) : value) - axis.low) / (axis.high - axis.low));

  const TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
                   86400, 172800, 604800, 2592000];

  function timeTicks([from, to]) {
    const step = SECOND * (TICKS_S.find(s => (to - from) / s <= 5 * SECOND) || 31536000);
    const shift = zoneShift(from), ticks = [];
    for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) {
      const iso = isoOf(at), x = 100 * (at - from) / (to - from);
      const isDay = step >= DAY || iso.slice(11, 19) === "00:00:00";
      ticks.push({ at, x, text: isDay ? iso.slice(5, 10) : iso.slice(11, step >= MINUTE ? 16 : 19) });
    }
    return ticks;
  }

  /* -- curves: pictures ----------------------------------------------------------------- */

  const xOf = (at, [from, to]) => 1000 * (at - from) / (to - from);

  function restartsIn(job, [from, to]) {
    return epochsOf(job).slice(1).filter(e => e.begun_ms > from && e.begun_ms < to);
  }

  /* Where a restart is drawn, no line leads over it. */
  function linePath(points, range, axis, cuts) {
    let path = "", before = null;
    for (const [at, value] of points) {
      if (!isNumber(value)) continue;
      const isCut = before !== null && cuts.some(e => e.begun_ms > before && e.begun_ms <= at);
      const x = xOf(at, range).toFixed(1), y = heightOf(axis, value).toFixed(2);
      path += before === null || isCut ? `M${x} ${y}h0` : `L${x} ${y}`;
      before = at;
    }
    return path;
  }

  /* Those within the range, and one on each side, to which the line leads. */
  function pointsIn(points, [from, to]) {
    const first = points.findIndex(([at]) => at >= from), after = points.findIndex(([at]) => at > to);
    if (first < 0) return [];
    return points.slice(Math.max(first - 1, 0), after < 0 ? points.length : after + 1);
  }

  function nearestPoint(points, at) {
    return points.reduce((best, point) =>
      isNumber(point[1]) && (!best || Math.abs(point[0] - at) < Math.abs(best[0] - at)) ? point : best, null);
  }

  function stepAt(job, at) {
    const { time_ms: times = [], step = [] } = curveOf(job), i = times.indexOf(at);
    return i >= 0 && step[i] ? `, step ${count(step[i])}` : "";
  }

  function plotPicture(view) {
    const { points, range, axis, cuts, mark } = view, drag = chosen.drag;
    const line = (look, d) => h("path", { key: look, class: look, d: d || "M0 0" });
    const upright = xs => xs.map(x => `M${x.toFixed(1)} 0V100`).join("");
    const at = mark && xOf(mark[0], range).toFixed(1);
    return h("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      line("grid", axisTicks(axis).map(tick => `M0 ${tick.y.toFixed(2)}H1000`).join("")),
      line("grid faint", upright(timeTicks(range).map(tick => 10 * tick.x))),
      line("cut", upright(cuts.map(e => xOf(e.begun_ms, range)))),
      line("line", linePath(points, range, axis, view.isWhole ? [] : cuts)),
      drag && h("rect", { key: "drag", class: "drag", y: 0, height: 100, x: Math.min(...drag),
                          width: Math.abs(drag[1] - drag[0]) }),
      view.isMarked && line("at", `M${at} 0V100`),
      mark && line("dot", `M${at} ${heightOf(axis, mark[1]).toFixed(2)}h0`));
  }

  /* The value under the pointer or the newest one, and between which all are. */
  function plotCaption(job, curve, view) {
    const { values, axis, mark, isMarked } = view, unit = curve.unit && ` ${curve.unit}`;
    return h("figcaption", null, h("h3", null, curve.title), " ",
             h("b", null, mark ? figure(mark[1]) + unit : "–"),
             small(isMarked
               ? ` at ${clock(mark[0])}${stepAt(job, mark[0])}`
               : ` ${figure(least(values))} to ${figure(most(values))}${axis.isLog ? ", logarithmic" : ""}`));
  }

  function plot(job, curve, all, range) {
    const points = pointsIn(all, range), values = points.map(([, value]) => value).filter(isNumber);
    const restarts = restartsIn(job, range);
    const known = points.filter(([at, value]) => at >= range[0] && at <= range[1] && isNumber(value));
    const isMarked = chosen.at !== null && chosen.at >= range[0] && chosen.at <= range[1];
    const view = { points, values, range, isMarked, isWhole: curve.isWhole,
                   axis: valueAxis(curve, values.length ? values : [0, 1]),
                   cuts: restarts.length <= CUTS_MAX ? restarts : [],
                   mark: isMarked ? nearestPoint(known, chosen.at) : known[known.length - 1] || null };
    if (!view.mark) view.isMarked = false;
    const text = view.mark ? `${figure(view.mark[1])} ${curve.unit} at ${clock(view.mark[0])}` : "nothing";
    return h("figure", { key: curve.name, class: "curve" }, plotCaption(job, curve, view),
      h("div", { class: "plot" },
        h("div", { class: "ys", "aria-hidden": "true" }, axisTicks(view.axis).map(tick =>
          h("span", { style: { top: `${tick.y}%` } }, tick.text))),
        h("div", { class: "canvas", tabindex: "0", role: "slider", "aria-label": `${curve.title} over time`,
                   "aria-valuemin": 0, "aria-valuemax": Math.max(known.length - 1, 0),
                   "aria-valuenow": Math.max(known.indexOf(view.mark), 0), "aria-valuetext": text,
                   onpointermove: event => onPlotMove(event, range), onpointerleave: onPlotLeave,
                   onpointerdown: event => onPlotDown(event, range), onpointerup: event => onPlotUp(event, range),
                   ondblclick: () => chooseRange(null), onblur: onPlotLeave,
                   onkeydown: event => onPlotKey(event, known, range) },
          plotPicture(view))),
      h("div", { class: "xs", "aria-hidden": "true" }, timeTicks(range).map(tick => tick.x > 3 && tick.x < 97 &&
        h("span", { style: { left: `${tick.x}%` } }, tick.text))));
  }

  /* -- curves: pointer and keys ----------------------------------------------------------- */

  function chooseRange(range, last = 0) {
    Object.assign(chosen, { range, last, drag: null });
    draw();
  }

  function plotX(event) {
    const box = event.currentTarget.getBoundingClientRect();
    return within((event.clientX - box.left) / box.width, 0, 1);
  }

  function onPlotMove(event, [from, to]) {
    const x = plotX(event);
    chosen.at = from + x * (to - from);
    if (chosen.drag) chosen.drag = [chosen.drag[0], 1000 * x];
    draw();
  }

  function onPlotLeave() {
    if (chosen.at === null || chosen.drag) return;
    chosen.at = null;
    draw();
  }

  function onPlotDown(event) {
    if (event.button || event.pointerType === "touch") return;
    event.currentTarget.setPointerCapture(event.pointerId);
    chosen.drag = [1000 * plotX(event), 1000 * plotX(event)];
  }

  function onPlotUp(event, [from, to]) {
    const [x, y] = (chosen.drag || [0, 0]).slice().sort((a, b) => a - b);
    chosen.drag = null;
    if (y - x < 10) draw();
    else chooseRange([from + x / 1000 * (to - from), from + y / 1000 * (to - from)]);
  }

  /* To the points before and after, closer and farther. */
  function onPlotKey(event, known, [from, to]) {
    const at = known.indexOf(nearestPoint(known, chosen.at === null ? Infinity : chosen.at));
    const centre = chosen.at === null ? (from + to) / 2 : chosen.at;
    const zoom = factor => chooseRange([centre - (centre - from) * factor, centre + (to - centre) * factor]);
    const moves = { ArrowLeft: chosen.at === null ? known.length - 1 : at - 1, ArrowRight: at + 1, Home: 0,
                    End: known.length - 1 };
    if (event.key in moves && known.length) {
      chosen.at = known[within(moves[event.key], 0, known.length - 1)][0];
      draw();
    } else if (event.key === "+" || event.key === "=") {
      zoom(0.5);
    } else if (event.key === "-") {
      zoom(2);
    } else if (event.key === "Escape" || event.key === "0") {
      chosen.at = null;
      chooseRange(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  const RANGES = [[5 * MINUTE, "5 min"], [30 * MINUTE, "30 min"], [3 * HOUR, "3 h"], [DAY, "1 day"]];

  function rangeChips(job) {
    const [from, to] = wholeRange(job), useful = RANGES.filter(([ms]) => ms < to - from);
    if (!useful.length && !chosen.range) return null;
    return h("div", { class: "chips", role: "group", "aria-label": "Time range" },
             useful.map(([ms, text]) => chip(!chosen.range && chosen.last === ms, () => chooseRange(null, ms), text)),
             chip(!chosen.range && !chosen.last, () => chooseRange(null), "All"),
             chosen.range && h("span", { class: "note" }, `${clock(chosen.range[0])} to ${clock(chosen.range[1])}`));
  }

  function curvesSection(job) {
    const curves = CURVES.map(curve => [curve, curvePoints(job, curve)])
      .filter(([curve, points]) => isWorthACurve(curve, points));
    if (!curves.length || !isTime(wholeRange(job)[0])) return null;
    return h("section", { id: "curves", "aria-labelledby": "curves-t" },
             h("div", { class: "bar-of-tools" }, h("h2", { id: "curves-t" }, "Curves"), rangeChips(job),
               h("span", { class: "note hint" }, "drag to zoom, double-click for all; keys: ← → + − 0")),
             h("div", { class: "curves" },
               curves.map(([curve, points]) => plot(job, curve, points, shownRange(job)))));
  }

