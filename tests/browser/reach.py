"""Whether a part of a page can be used without a mouse and with weak eyes: by axe-core, and by Tab."""

from importlib.util import find_spec

import pytest

needs_axe = pytest.mark.skipif(
    find_spec("axe_playwright_python") is None, reason="needs axe-playwright-python"
)

#: what the Web Content Accessibility Guidelines 2.2 ask for, levels A and AA
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

#: what people use: seen, not switched off, and of tabs and the like only one takes the focus
CONTROLS = """root => {
  const all = root.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex], "
    + "[role=slider], [role=tab], [role=button]");
  const isOne = one => one.checkVisibility({ visibilityProperty: true }) && !one.matches(":disabled")
    && one.closest("[hidden], [inert]") === null;
  const group = "[role=tablist], [role=menu], [role=radiogroup], [role=grid]";
  const roves = one => one.tabIndex < 0 && one.closest(group);
  const isPlace = one => one.tabIndex < 0 && one.dataset.lmSuppressShortcuts; // of clicks only
  return [...all].filter(one => isOne(one) && !roves(one) && !isPlace(one)).map(window.dhName);
}"""
#: how a control is called, so that one that is drawn anew is the same
NAME = """() => {
  window.dhName = one => `${one.tagName.toLowerCase()} ${one.getAttribute("aria-label")
    ?? (one.labels?.length ? one.labels[0].textContent : one.textContent || one.id || one.className)}`
    .replace(/[0-9.,:]+/g, "#").replace(/\\s+/g, " ").slice(0, 80).trim();
}"""


def violations(page, root, *without):
    """What is wrong below that selector: ["rule: element", ...], without what is below others."""
    from axe_playwright_python.sync_playwright import Axe

    context = {"include": [root], "exclude": list(without)}
    found = Axe().run(page, context, {"runOnly": TAGS, "resultTypes": ["violations"]}).response
    return sorted(
        f"{one['id']}: {' '.join(node['html'].split())[:120]}{_contrast(node)}"
        for one in found["violations"]
        for node in one["nodes"]
    )


def _contrast(node):
    data = [one["data"] for one in node["any"] if isinstance(one.get("data"), dict)]
    return "".join(
        f" ({one['contrastRatio']}: {one['fgColor']} on {one['bgColor']})"
        for one in data
        if "contrastRatio" in one
    )


def unreached(page, root):
    """Controls below that selector at which Tab never comes."""
    page.evaluate(NAME)
    part = page.locator(root).first
    wanted = part.evaluate(CONTROLS)
    part.evaluate(
        "one => { const start = document.createElement('span'); start.tabIndex = 0; start.id = 'dh-start';"
        " one.before(start); start.focus(); }"
    )
    reached = []
    for _ in range(2 * len(wanted) + 20):
        page.keyboard.press("Tab")
        name = part.evaluate(
            "one => one.contains(document.activeElement) ? window.dhName(document.activeElement) : null"
        )
        if name is None:
            break
        reached.append(name)
    else:
        reached.append("(Tab never leaves it)")
        wanted.append("a way out")
    page.evaluate("document.getElementById('dh-start').remove()")
    return sorted({one for one in wanted if one not in reached})
