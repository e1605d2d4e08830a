  /* -- head and failure --------------------------------------------------------------- */

  function sizeFact(job) {
    const { node_count: nodes, worker_count: workers, spare_count: spares, min_nodes: fewest,
            max_nodes: all } = job;
    const isRange = all && (fewest !== all || nodes !== all);
    if (!nodes && (!all || isOver(job))) return "";
    return (workers ? `${plural(workers, "worker")} on ` : "") + plural(nodes || 0, "node") +
      (spares ? ` + ${plural(spares, "spare")}` : "") +
      (isRange ? ` of ${fewest === all ? count(all) : `${count(fewest)} to ${count(all)}`}` : "");
  }

  function headFacts(job) {
    return [
      job.epoch && `epoch ${count(job.epoch)}`,
      sizeFact(job),
      isNumber(job.restarts) && `${count(job.restarts)} of ${plural(job.max_restarts, "restart")}`,
      job.started_ms && ["started ", time(job.started_ms, true)],
      isNumber(job.exit_code) && `exit code ${job.exit_code}`,
      job.program && job.program !== job.name && job.program,
      job.job !== job.name && ["run id ", h("code", null, job.job)],
    ].filter(fact => fact && fact.length);
  }

  function headSection(job) {
    const state = stateOf(job), isRunning = state.word === "running";
    return h("section", { id: "head", "aria-label": "State" },
             h("h1", null, (page.isReport ? "Report of job " : "") + nameOf(job)),
             h("p", { class: "now" }, h("span", { "aria-live": "polite" }, statePill(state)),
               isNumber(job.state_ms) && [" since ", time(stateBegan(job), true)],
               page.isReport && !isOver(job) && ` when this was written, at ${clock(now())}`),
             job.text && !isOfFailure(job) &&
               h("p", { class: "why" }, (isRunning ? "last restart: " : "") + job.text),
             job.notice && h("p", { class: "why" }, job.notice),
             h("ul", { class: "facts" }, headFacts(job).map(fact => h("li", null, fact))));
  }

  const stateBegan = job => job.ended_ms || (job.started_ms + job.age_ms - job.state_ms);

  function failureFacts(f) {
    const isOfRank = f.kind !== "lost", what = FAILURES[f.kind];
    return [
      isOfRank && ["rank", [rankLink(f.rank), small(` local rank ${f.local_rank}, pid ${f.pid}`)]],
      f.host && ["node", f.host],
      f.time_ms && ["when", time(f.time_ms)],
      ["what", what ? what(f) : f.kind],
      f.log && ["log", h("code", null, f.log)],
    ].filter(Boolean);
  }

  function failureText(job) {
    const f = job.failure || {};
    return [
      job.failure && h("dl", { class: "facts" }, failureFacts(f).map(([term, text]) =>
        h("div", { key: term }, h("dt", null, term), h("dd", null, text)))),
      f.said && h("div", { class: "copied" }, output("What it said last", f.said), copyButton(f.said)),
      job.report && h("details", { open: page.isReport }, h("summary", null, "The whole report"),
                      h("div", { class: "copied" }, output("The whole report", job.report),
                        copyButton(job.report))),
    ];
  }

  const isOfFailure = job => job.cause === "failure" && Boolean(job.failure) && !isOver(job);

  /* If the job went on after it, one line of it is enough. */
  function failureSection(job) {
    const f = job.failure;
    if (!f && !job.report) return null;
    if ((isOver(job) && stateOf(job).class === "bad") || !f)
      return h("section", { id: "failure", class: "alarm", "aria-labelledby": "failure-t" },
               h("h2", { id: "failure-t" }, "First failure"), failureText(job));
    const words = [f.kind !== "lost" && `rank ${f.rank}`, f.host, (FAILURES[f.kind] || (() => f.kind))(f)];
    const text = isOfFailure(job) && job.text ? job.text : words.filter(Boolean).join(" · ");
    return h("section", { id: "failure-before", "aria-labelledby": "failure-t" },
             h("details", null, h("summary", { id: "failure-t" }, h("b", null, "Latest failure"), ` ${text} `,
                                  small("at ", time(f.time_ms, true))), failureText(job)));
  }

  /* -- figures ------------------------------------------------------------------------ */

  const curveOf = job => (job.history && job.history.curve) || {};
  const epochsOf = job => (job.history && job.history.epochs) || [];
  const newestOf = (job, name) => (curveOf(job)[name] || []).filter(isNumber).pop();
  /* Of a job that runs, the newest point may be of the epoch before. */
  const lastOf = (job, name) => job.state === "running" ? undefined : newestOf(job, name);

  function jobLoss(job, nodes) {
    const first = nodes.find(n => n.group_rank === 0 && isNumber(n.loss)) || nodes.find(n => isNumber(n.loss));
    return first ? first.loss : lastOf(job, "loss");
  }

  function jobRate(job, nodes) {
    const rates = nodes.filter(n => isNumber(n.group_rank) && n.step).map(n => n.steps_per_s).filter(isNumber);
    return rates.length ? least(rates) : lastOf(job, "steps_per_s");
  }

  function tile(what, value, more, below) {
    return h("div", { key: what }, h("dt", null, what),
             h("dd", null, value), more && h("dd", null, small(more)),
             below && h("dd", { class: "below" }, below));
  }

  function stepTile(job, step) {
    if (!job.steps)
      return tile("Step", step ? count(step) : "–",
                  job.state === "running" && !step ? "the workers report none" : "");
    const share = within(step / job.steps, 0, 1);
    return tile("Step", step ? count(step) : "–", `of ${count(job.steps)}` + (step ? ` · ${percent(share)}` : ""),
                progressBar(share));
  }

  const GIB = 1024;

  /* The mean of the use, the fullest and the hottest GPU, and the power of all; a node gives the same of its own. */
  function gpuTotals(nodes) {
    const gpus = nodes.map(n => n.gpus).filter(g => g && g.count), known = gpus.filter(g => isNumber(g.percent));
    if (!gpus.length) return null;
    const fullest = gpus.reduce((a, b) => b.used_mib > a.used_mib ? b : a);
    return {
      gpu_percent: sum(known.map(g => g.percent * g.count)) / sum(known.map(g => g.count)),
      gpu_used_mib: fullest.used_mib, total_mib: fullest.total_mib, celsius: most(gpus.map(g => g.celsius)),
      gpu_watts: sum(gpus.map(g => g.watts)), count: sum(gpus.map(g => g.count)),
    };
  }

  const gpuTiles = gpus => gpus ? [
    tile("GPU use", isNumber(gpus.gpu_percent) ? `${gpus.gpu_percent.toFixed(0)} %` : "–",
         `of ${plural(gpus.count, "GPU")}`),
    tile("GPU memory", percent(gpus.gpu_used_mib / Math.max(gpus.total_mib, 1), 0),
         "of the fullest GPU"),
    tile("GPU power", `${figure(gpus.gpu_watts / 1000)} kW`, `hottest ${count(gpus.celsius)} °C`),
  ] : [];

  function figuresSection(job, nodes) {
    const isRunning = job.state === "running", step = job.step || lastOf(job, "step") || 0;
    const rate = jobRate(job, nodes), loss = jobLoss(job, nodes);
    const left = isRunning && job.steps > step && step ? (job.steps - step) / rate * SECOND : NaN;
    const saved = least(nodes.map(n => n.checkpoint_age_ms).filter(isNumber));
    const inMemory = least(nodes.filter(n => isNumber(n.group_rank)).map(n => n.memory && n.memory.step || 0));
    return h("section", { id: "figures", "aria-label": "Progress" }, h("dl", { class: "tiles" },
      (step > 0 || isRunning) && stepTile(job, step),
      isNumber(rate) && isRunning && tile("Rate", figure(rate), "steps/s"),
      left < 1e13 && tile("Time left", duration(left)),
      isNumber(loss) && tile("Loss", figure(loss)),
      isNumber(job.goodput) && tile("Goodput", percent(within(job.goodput, 0, 1)),
                                    step || newestOf(job, "step") ? "new steps" : "workers ran"),
      isNumber(saved) && !isOver(job) && !page.isReport && tile("Checkpoint", `${age(saved)} ago`),
      inMemory > 0 && isRunning && tile("In memory", count(inMemory), "step"),
      gpuTiles(gpuTotals(nodes))));
  }

