// SPDX-License-Identifier: MIT
// The rules of WCAG 2.1 AA that can be computed from a page; the value is a list of faults. Each
// rule has the name by which accessibility checkers know it.
(() => {
    const faults = [];
    const all = selector => [...document.querySelectorAll(selector)];

    const describe = e => {
        const id = e.id ? "#" + e.id : "";
        const name = e.getAttribute("class");
        const text = (e.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
        return `<${e.localName}${id}${name ? "." + name.trim().replace(/\s+/g, ".") : ""}> "${text}"`;
    };
    const fault = (rule, e, why = "") => faults.push(`${rule}: ${describe(e)} ${why}`.trim());
    const visible = e => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
        e.getClientRects().length > 0;
    const hidden = e => e.closest("[aria-hidden=true]") !== null;

    // -- names ----------------------------------------------------------------------------

    const nameOf = e => {
        const ids = (e.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean);
        const labels = ids.map(id => document.getElementById(id)?.textContent || "").join(" ");
        const own = [...e.children].find(c => c.localName === "title")?.textContent;
        const images = [...e.querySelectorAll("[aria-label], [alt]")]
            .map(c => c.getAttribute("aria-label") || c.getAttribute("alt")).join(" ");
        const seen = [...e.childNodes].map(n => n.nodeType === 3 ? n.data
            : n.nodeType === 1 && !hidden(n) ? n.textContent : "").join("");
        return (labels || e.getAttribute("aria-label") || own || seen.trim() || images ||
            e.getAttribute("title") || "").trim();
    };

    const checkNames = () => {
        for (const e of all("a[href], button, summary, [role=button], [role=link], [role=gridcell]"))
            if (visible(e) && !nameOf(e))
                fault("name", e, "has no name");
        for (const e of all("input:not([type=hidden]), select, textarea"))
            if (!nameOf(e) && !(e.labels && e.labels.length))
                fault("label", e, "has no label");
        for (const e of all("img:not([alt])"))
            fault("image-alt", e);
        for (const e of all("svg"))
            if (visible(e) && !hidden(e) && !(e.getAttribute("role") === "img" && nameOf(e)) &&
                !e.parentElement.closest("svg, [role=img]"))
                fault("svg-img-alt", e, "needs role=img and a name, or aria-hidden");
        for (const e of all("[role=img], [role=meter], [role=progressbar], progress, meter"))
            if (!hidden(e) && !nameOf(e) && !(e.labels && e.labels.length))
                fault("role-img-alt", e, "has no name");
        for (const e of all("[aria-labelledby], [aria-describedby], [aria-controls], [aria-owns]"))
            for (const attribute of ["labelledby", "describedby", "controls", "owns"])
                for (const id of (e.getAttribute("aria-" + attribute) || "").split(/\s+/))
                    if (id && !document.getElementById(id))
                        fault("aria-valid-attr-value", e, `refers to #${id}, which is not there`);
    };

    // -- the document ---------------------------------------------------------------------

    const checkDocument = () => {
        const html = document.documentElement;
        if (!html.lang)
            fault("html-has-lang", html);
        if (!document.title.trim())
            fault("document-title", html);
        if (all("main").length !== 1)
            fault("landmark-one-main", html, `${all("main").length} <main>`);
        const viewport = document.querySelector("meta[name=viewport]")?.content || "";
        if (!viewport.includes("width=device-width") || /user-scalable=no|maximum-scale/.test(viewport))
            fault("meta-viewport", html, viewport);
        const ids = new Set();
        for (const e of all("[id]")) {
            if (ids.has(e.id))
                fault("duplicate-id", e);
            ids.add(e.id);
        }
        for (const e of all("[tabindex]"))
            if (e.tabIndex > 0)
                fault("tabindex", e);
        for (const e of all("a[href] :is(a[href], button, input), button :is(a[href], button, input), " +
                            "summary :is(a[href], button, input)"))
            fault("nested-interactive", e);
        for (const e of all("ul > :not(li, script, template), ol > :not(li, script, template)"))
            fault("list", e);
        for (const e of all("dl > :not(dt, dd, div, script, template)"))
            fault("definition-list", e);
        checkHeadings();
        checkLandmarks();
    };

    const checkHeadings = () => {
        let last = 0;
        const headings = all("h1, h2, h3, h4, h5, h6").filter(visible);
        if (headings.filter(h => h.localName === "h1").length !== 1)
            fault("page-has-heading-one", document.documentElement);
        for (const h of headings) {
            const level = Number(h.localName[1]);
            if (level > last + 1)
                fault("heading-order", h, `after h${last}`);
            if (!nameOf(h))
                fault("empty-heading", h);
            last = level;
        }
    };

    const checkLandmarks = () => {
        const landmark = "main, header, footer, nav, aside, [role=alert], [role=status], noscript";
        for (const e of document.body.children)
            if (visible(e) && e.textContent.trim() && !e.matches(landmark) &&
                !e.querySelector(landmark) && !e.matches("script, style, a[href^='#'], dialog"))
                fault("region", e, "stands in no landmark");
    };

    const checkTables = () => {
        for (const table of all("table").filter(visible)) {
            if (!table.querySelector("th"))
                fault("table-headers", table);
            for (const th of table.querySelectorAll("th"))
                if (!th.scope)
                    fault("scope-attr", th);
            for (const th of table.querySelectorAll("thead th"))
                if (!nameOf(th))
                    fault("empty-table-header", th);
        }
    };

    const checkScrolling = () => {
        for (const e of all("body *")) {
            const style = getComputedStyle(e);
            const scrolls = o => o === "auto" || o === "scroll";
            if (((scrolls(style.overflowX) && e.scrollWidth > e.clientWidth + 1) ||
                 (scrolls(style.overflowY) && e.scrollHeight > e.clientHeight + 1)) && visible(e) &&
                e.tabIndex < 0 && !e.querySelector("a[href], button, input, summary, [tabindex='0']"))
                fault("scrollable-region-focusable", e);
        }
    };

    // -- contrast -------------------------------------------------------------------------

    // [red, green, blue, alpha], all of 0 to 1
    const colourOf = text => {
        let m = text.match(/^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/);
        if (m)
            return [m[1] / 255, m[2] / 255, m[3] / 255, m[4] === undefined ? 1 : Number(m[4])];
        m = text.match(/^color\(srgb ([\d.]+) ([\d.]+) ([\d.]+)(?: \/ ([\d.]+))?\)$/);
        if (m)
            return [Number(m[1]), Number(m[2]), Number(m[3]), m[4] === undefined ? 1 : Number(m[4])];
        throw new Error("colour " + text);
    };
    const over = (top, below) => {
        const a = top[3];
        return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a)).concat(1);
    };
    const luminance = c => {
        const [r, g, b] = c.slice(0, 3).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (a, b) => {
        const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
        return (light + 0.05) / (dark + 0.05);
    };
    const canvas = colourOf(getComputedStyle(document.documentElement).colorScheme.includes("dark") &&
        matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(18, 18, 18)" : "rgb(255, 255, 255)");

    const backgroundOf = e => {
        const layers = [];
        for (let at = e; at; at = at.parentElement) {
            const style = getComputedStyle(at);
            if (style.backgroundImage !== "none" && !style.backgroundImage.startsWith("linear-gradient"))
                throw new Error("background image of " + describe(at));
            const c = colourOf(style.backgroundColor);
            layers.push(c);
            if (c[3] === 1)
                break;
        }
        return layers.reduceRight((below, c) => over(c, below), canvas);
    };

    // Text in a drawing may stand on a shape that was drawn before it.
    const shapeBelow = text => {
        const box = text.getBoundingClientRect();
        const x = box.x + box.width / 2, y = box.y + box.height / 2;
        const svg = text.ownerSVGElement;
        for (const e of [...svg.querySelectorAll("rect, path, circle, polygon")].reverse()) {
            const b = e.getBoundingClientRect();
            const fill = getComputedStyle(e).fill;
            if (e.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING &&
                fill !== "none" && !fill.startsWith("url") && e.localName !== "path" && visible(e) &&
                b.left <= x && x <= b.right && b.top <= y && y <= b.bottom) {
                const c = colourOf(fill);
                c[3] *= Number(getComputedStyle(e).fillOpacity) * Number(getComputedStyle(e).opacity);
                return c;
            }
        }
        return [0, 0, 0, 0];
    };

    const checkContrast = () => {
        const seen = new Map();
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        for (let n; (n = walker.nextNode());) {
            const e = n.parentElement;
            if (n.data.trim() && !e.closest("script, style, noscript, svg title, svg desc, template") &&
                visible(e))
                seen.set(e, (seen.get(e) || "") + n.data);
        }
        for (const e of seen.keys()) {
            const style = getComputedStyle(e);
            const drawn = e.ownerSVGElement !== undefined && e.ownerSVGElement !== null;
            let background = backgroundOf(e);
            if (drawn)
                background = over(shapeBelow(e), background);
            const c = colourOf(drawn ? style.fill : style.color);
            for (let at = e; at; at = at.parentElement)
                c[3] *= Number(getComputedStyle(at).opacity);
            const got = ratio(over(c, background), background);
            const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
            const wanted = size >= 24 || (size >= 18.66 && bold) ? 3 : 4.5;
            if (got < wanted - 0.005)
                fault("color-contrast", e, `${got.toFixed(2)} of ${wanted}, ${style.color}`);
        }
        return seen.size;
    };

    checkNames();
    checkDocument();
    checkTables();
    checkScrolling();
    const texts = checkContrast();
    if (!texts)
        faults.push("nothing was checked");
    return faults;
})()
