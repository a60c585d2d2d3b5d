"""The report and the page of a watched search in a real browser: phone and desk, light, dark and paper."""

from __future__ import annotations

import shutil

import pytest
from support.report_world import surveyed_release

from dphypo.cli.watch_page import live_page

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"phone": (360, 740), "desktop": (1280, 900)}
BAD = {"serious", "critical"}


@pytest.fixture(scope="module")
def browser():
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=FLAGS, headless=True)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    secret, watched = folder / "secret.html", surveyed_release().surveys[0].to_dict()
    secret.write_text(live_page({"cost": "Privacy: ε = 1", "table": watched, "total": 12}, runs=False), "utf-8")
    public = surveyed_release("digits " + 64 * "f")  # as long as a hash, and without a place to break it
    return {"public": public.report(folder / "public.html"), "secret": secret}


@pytest.fixture
def shown(browser, pages, request):
    """A page in the browser, and all that went wrong with it."""
    kind, size, scheme = request.param
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith("file:") or wrong.append(f"fetched {asked.url[:80]}"))
    page.goto(pages[kind].as_uri())
    yield page, wrong
    context.close()


EVERY = [
    pytest.param((kind, size, scheme), id=f"{kind}-{size}-{scheme}", marks=pytest.mark.slow if other else ())
    for kind, shown_fast in (("public", None), ("secret", ("phone", "dark")))
    for size in ("phone", "desktop")
    for scheme in ("light", "dark")
    for other in ((size, scheme) != shown_fast,)
]


@pytest.mark.slow
@pytest.mark.parametrize("shown", EVERY, indirect=True)
def test_a_report_is_quiet_accessible_and_fits(shown, request, tmp_path):
    page, wrong = shown
    kind, size, scheme = request.node.callspec.params["shown"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark is (scheme == "dark")
    picture = page.screenshot(path=tmp_path / "shot.png")
    assert len(picture) > 5_000
    found = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]}).response
    bad = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"] if one["impact"] in BAD]
    assert bad == []
    assert any(one["id"] == "color-contrast" for one in found["passes"]), "contrast was checked"
    if kind == "secret":
        for part in (0, 0.5, 1):
            page.evaluate("part => scrollTo(0, part * document.body.scrollHeight)", part)
            box = page.locator(".secret").bounding_box()
            assert -1 <= box["y"] < 100, "the warning stays in sight"
            assert box["width"] <= SIZES[size][0]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown", [("public", "desktop", "dark"), ("secret", "phone", "dark")], ids="-".join, indirect=True
)
def test_a_report_can_be_printed(shown):
    """On paper it is dark on white, whatever the screen was, and the banner of the secret one is printed."""
    page, wrong = shown
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
    if page.locator(".secret").count():
        assert page.locator(".secret").is_visible()
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("shown", [("public", "desktop", "light")], ids="-".join, indirect=True)
def test_drawings_take_the_colours_of_the_page(shown):
    page, _ = shown
    letters = "[...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill)"
    light = page.evaluate(letters)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(letters)
    assert len(light) > 10
    assert not set(light) & set(dark)
