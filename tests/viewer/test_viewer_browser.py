"""The main flows in a real browser, against the real server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import WAIT_MS, browser
from viewer_lab import EVIL, RIGID, add_run, full_reward, make_trees, session

from world.reader import World

PAIR = "runs=self/1,late/1"
FRAME = "() => document.querySelector('.clock output').textContent"


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, fixture_worlds: Path, repository: Path
) -> Iterator[tuple[str, Path]]:
    """Address of a running viewer over trees of its own, and the runs' root."""
    trees = make_trees(tmp_path_factory.mktemp("site"), fixture_worlds)
    roots = [f"--{name}={getattr(trees, name)}" for name in ("cases", "data", "runs")]
    command = [sys.executable, str(repository / "viewer/server.py"), "--port=0", *roots]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        match = re.search(r"http://\S+/", line)
        assert match, line
        try:
            yield match[0], trees.runs
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def page(started: Any, site: tuple[str, Path]) -> Iterator[Any]:
    """A fresh page; an error of a script, or something the policy blocks, fails the test."""
    context = started.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    found = context.new_page()
    found.set_default_timeout(WAIT_MS)
    troubles: list[str] = []
    found.on("pageerror", lambda error: troubles.append(str(error)))
    found.on(
        "console",
        lambda message: troubles.append(message.text) if "Content Security" in message.text else None,
    )
    found.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    found.on(
        "request",
        lambda request: None if request.url.startswith((site[0], "blob:")) else troubles.append(request.url),
    )
    yield found
    context.close()
    assert troubles == []


def rows(page: Any) -> list[str]:
    found: list[str] = page.locator("tr[data-id]").evaluate_all("nodes => nodes.map(node => node.dataset.id)")
    return found


def test_runs_are_filtered_sorted_and_restored_from_the_address(page: Any, site: tuple[str, Path]) -> None:
    page.goto(f"{site[0]}#/runs")
    page.wait_for_selector("tr[data-id]")
    every = rows(page)
    page.get_by_label("Filter the runs").fill("kind:synthetic score>=0.6")
    page.wait_for_function("() => document.querySelectorAll('tr[data-id]').length === 2")
    page.get_by_role("button", name="Overall").click()
    page.wait_for_function(f"() => document.querySelector('tr[data-id]').dataset.id === '{RIGID}/self/1'")
    address = page.url
    assert "sort=score" in address
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("tr[data-id]")
    assert rows(page) == [f"{RIGID}/self/1", f"{RIGID}/late/1"]
    page.get_by_label("Filter the runs").fill("")
    page.get_by_role("button", name="broken 1", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('tr[data-id]').length === 1")
    assert rows(page) == ["real/clip/frozen/1"]
    assert len(every) > 5


def test_a_run_that_ends_shows_without_reloading(page: Any, site: tuple[str, Path]) -> None:
    add_run(site[1], "real/live/self/.1.staging-cd34/run", {"state": "running", "run_id": "cd34"})
    page.goto(f"{site[0]}#/runs?q=case:live")
    page.wait_for_selector("tr[data-id] .tag.run")
    folder = site[1] / "real/live/self"
    add_run(site[1], "real/live/self/.1.staging-cd34/run", {"state": "done", "run_id": "cd34"})
    (folder / ".1.staging-cd34/run").rename(folder / "1")
    page.wait_for_selector("tr[data-id] .tag.good")
    add_run(site[1], "real/live/self/1", {"state": "done"}, full_reward("real/live", 0.5))
    page.wait_for_function("() => document.querySelector('tr[data-id]').textContent.includes('0.5')")


def test_a_case_view_follows_a_run_that_is_scored(page: Any, site: tuple[str, Path]) -> None:
    add_run(site[1], "real/followed/self/1", {"state": "done"})
    page.goto(f"{site[0]}#/case/real/followed?runs=self/1&tab=scores")
    page.get_by_text("not scored").first.wait_for()
    add_run(site[1], "real/followed/self/1", {"state": "done"}, full_reward("real/followed", 0.4321))
    page.get_by_text("0.4321").first.wait_for()


def test_two_systems_play_in_step(page: Any, site: tuple[str, Path]) -> None:
    page.goto(f"{site[0]}#/case/{RIGID}?{PAIR}&f=3&speed=0.1")
    page.wait_for_function(
        "() => [...document.querySelectorAll('video')].filter(v => v.readyState >= 2).length === 3"
    )
    frames = "() => [...document.querySelectorAll('video')].map(v => Math.floor(v.currentTime * 24))"
    shown = "document.querySelector('.clock output').textContent"
    page.wait_for_function(f"() => ({frames})().every(frame => frame === 3)")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"() => ({frames})().every(frame => frame === 4)")
    page.keyboard.press("End")
    page.wait_for_function(f"() => ({frames})().every(frame => frame === 15)")
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_function(f"() => ({frames})().every(frame => frame === 10)")
    assert page.evaluate(FRAME).startswith("10 / 15")
    page.keyboard.press(" ")
    page.wait_for_function("() => [...document.querySelectorAll('video')].every(v => !v.paused)")
    # Playing, they stay within a few frames of one clock; stopped, on one frame exactly.
    page.wait_for_function(
        f"() => {{ const f = ({frames})(); return f[0] > 11 && Math.max(...f) - Math.min(...f) <= 2; }}"
    )
    page.keyboard.press(" ")
    page.wait_for_function(
        f"() => {{ const f = ({frames})(); "
        f"return f.every(one => one === f[0]) && {shown}.startsWith(f[0] + ' '); }}"
    )


def test_meshes_follow_the_clock_and_objects_can_be_hidden(page: Any, site: tuple[str, Path]) -> None:
    page.goto(f"{site[0]}#/case/{RIGID}?{PAIR}&tab=meshes&f=5")
    at = (
        "frame => { const all = [...document.querySelectorAll('canvas')]; "
        "return all.length === 3 && all.every(one => one.dataset.frame === frame); }"
    )
    page.wait_for_function(at, arg="5")
    page.get_by_label("Frame", exact=True).fill("12")
    page.wait_for_function(at, arg="12")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(at, arg="11")
    reference = page.locator(".tile.ref canvas")
    full = reference.screenshot()
    page.locator(".tile.ref").get_by_role("button", name="3 objects").click()
    page.locator(".tile.ref").get_by_role("button", name="None").click()
    page.locator(".tile.ref").get_by_role("button", name="3 objects").click()
    bare = reference.screenshot()
    assert len(bare) < len(full)
    page.get_by_role("button", name="Whole scene").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.hint')].every(node => node.textContent === 'free view')"
    )
    page.get_by_role("button", name="Case camera").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.hint')].every(node => node.textContent === 'case camera')"
    )


def test_scores_charts_transcript_and_files(page: Any, site: tuple[str, Path]) -> None:
    page.goto(f"{site[0]}#/case/{RIGID}?{PAIR}")
    page.get_by_role("tab", name="Scores").click()
    page.get_by_text("not applicable").first.wait_for()
    assert page.get_by_text("0.9000").count() > 3
    page.get_by_role("tab", name="Charts").click()
    page.locator(".u-over").first.click(position={"x": 1, "y": 20})
    page.wait_for_function("() => document.querySelector('.clock output').textContent.startsWith('0 /')")
    page.get_by_role("tab", name="Transcript").click()
    page.wait_for_selector(".step.call")
    page.wait_for_function("() => document.querySelector('.step img').naturalWidth === 1")
    assert page.locator(".step").count() == 8
    page.keyboard.press("6")
    page.get_by_role("button", name="logs/agent.log").click()
    page.get_by_text("second line").wait_for()
    assert "tab=files" in page.url


def test_results_sort_and_are_downloaded(page: Any, site: tuple[str, Path]) -> None:
    page.goto(f"{site[0]}#/results")
    links = "[...document.querySelectorAll('.results tbody th a')]"
    names = f"() => {links}.slice(0, 3).map(link => link.textContent).join()"
    page.wait_for_function(f"() => ({names})() === 'self,late,frozen'")
    page.get_by_role("button", name="System").click()
    page.wait_for_function(f"() => ({names})() === 'self,late,frozen'")
    page.get_by_role("button", name="System").click()
    page.wait_for_function(f"() => ({names})() === 'frozen,late,self'")
    with page.expect_download() as download:
        page.get_by_role("link", name="LaTeX").click()
    assert Path(download.value.path()).read_text().startswith("\\begin{tabular}")
    page.get_by_label("Metric of the table by case").select_option("dynamic_iou")
    page.locator(".heat .n", has_text="1 error").wait_for()
    assert "metric=dynamic_iou" in page.url


def test_hostile_names_and_words_stay_text(page: Any, site: tuple[str, Path]) -> None:
    name = EVIL.replace("/", "")
    run = add_run(
        site[1],
        f"real/{name}/{name}/1",
        {"agent": EVIL, "failure": EVIL, "failure_note": EVIL, "model": EVIL},
    )
    session(run, f"{name}.jsonl", {"role": "assistant", "content": EVIL}, EVIL, {"type": EVIL, "x": EVIL})
    page.goto(f"{site[0]}#/runs?q=onerror")
    page.get_by_role("link", name=f"real/{name}").click()
    page.get_by_role("tab", name="Transcript").click()
    page.wait_for_selector(".step.assistant")
    assert page.locator(".step.assistant .prose").inner_text() == EVIL
    assert page.locator("main img").count() == 0
    for tab in ("Scores", "Charts", "3D", "Files & record"):
        page.get_by_role("tab", name=tab).click()
    page.goto(f"{site[0]}#/cases")
    page.locator(".card b", has_text=name).wait_for()


def test_an_address_that_leads_nowhere_says_so(page: Any, site: tuple[str, Path]) -> None:
    page.goto(f"{site[0]}#/case/real/none")
    page.get_by_role("alert").wait_for()
    assert "there is no case real/none" in page.get_by_role("alert").inner_text()


def test_dark_light_and_a_narrow_screen(page: Any, site: tuple[str, Path]) -> None:
    page.goto(f"{site[0]}#/metrics")
    page.get_by_text("Dynamic IoU ↑").wait_for()
    before = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != before
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def test_the_overlay_lies_where_the_registration_puts_it(
    page: Any, site: tuple[str, Path], fixture_worlds: Path
) -> None:
    """A submission that is its reference moved, turned and scaled: the placed reference must cover it."""
    key = f"runs/{RIGID}/similar/1"
    alignment = json.loads((fixture_worlds / "expected_detail.json").read_text())[key]["alignment"]
    page.goto(site[0])
    submitted, given = fixture_worlds / key / "workspace/world", fixture_worlds / "data" / RIGID / "world"
    with World(submitted) as own, World(given) as other:
        cameras = [{"extrinsic": world.extrinsic.tolist()} for world in (own, other)]
        script = "async given => (await import('/static/js/scene.js')).placement(...given).elements"
        matrix = np.array(page.evaluate(script, [alignment, *cameras])).reshape(4, 4).T
        for number in own.ids:
            wanted, reference = own.object_mesh(number, 0)[0], other.object_mesh(number, 0)[0]
            placed = reference @ matrix[:3, :3].T + matrix[:3, 3]
            np.testing.assert_allclose(placed, wanted, atol=1e-4)
