"""page_test.py CCL_REPORT CHROMIUM|NODE: the page in a browser, used as a reader does, or its scripts."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import records

# Runs in the page: what is drawn, and what clicks, keys and the wheel do.
script = """<script>
(() => {
const result = {};
const mouse = (kind, x, y, more = {}) => {
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new (kind === "wheel" ? WheelEvent : MouseEvent)(kind,
    {clientX: box.left + x, clientY: box.top + y, bubbles: true, ...more}));
};
const press = key => window.dispatchEvent(new KeyboardEvent("keydown", {key}));
const middle = slice => [x((slice.from + slice.to) / 2),
  axis + slice.track.y + slice.depth * lineHeight + 6 - view.scrollTop];
const colorAt = (px, py) => {
  const ratio = window.devicePixelRatio || 1;
  const [r, g, b] = pen.getImageData(Math.round(px * ratio), Math.round(py * ratio), 1, 1).data;
  return "#" + [r, g, b].map(part => part.toString(16).padStart(2, "0")).join("");
};
const find = (cat, process) => model.processes[process].tracks.flatMap(t => t.all)
  .find(slice => slice.cat === cat);
result.slices = model.slices;
const all = to - from, step = find("send", 0);
result.color = colorAt(...middle(find("operation", 0)));
mouse("wheel", ...middle(step), {deltaY: -100});
result.zoomed = (to - from) / all;
press("0");
result.all = (to - from) / all;
mouse("mousedown", 800, 100);
mouse("mousemove", 700, 100);
window.dispatchEvent(new MouseEvent("mouseup"));
result.dragged = from > model.begin;
press("0");
mouse("mousemove", ...middle(step));
result.tip = tip.textContent;
select(step);
press("f");
mouse("mousedown", ...middle(step));
mouse("mouseup", ...middle(step));
window.dispatchEvent(new MouseEvent("mouseup"));
moved = false;
mouse("click", ...middle(step));
result.selected = byId("selected").innerText;
result.stepColor = colorAt(middle(step)[0], middle(step)[1] + 5);
const height_before = height;
mouse("click", 20, axis + 5);
result.folded = height < height_before && !model.processes[0].open;
const input = byId("find");
input.value = "MOVES";
input.dispatchEvent(new Event("input"));
result.found = byId("found").textContent;
result.phases = byId("phases").innerText;
result.networks = byId("networks").innerText;
result.report = byId("text").textContent;
result.loads = performance.getEntriesByType("resource").length;
document.body.dataset.result = JSON.stringify(result);
})();
</script></body>"""


def in_browser(browser: str, page: str, folder: pathlib.Path) -> dict:
    (folder / "tried.html").write_text(page.replace("</body>", script))
    ran = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,1000",
         f"--user-data-dir={folder}/profile", "--dump-dom", f"file://{folder}/tried.html"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)  # fmt: skip
    found = re.search(r'data-result="([^"]*)"', ran.stdout)
    assert found, ran.stderr[-2000:]
    result = json.loads(found.group(1).replace("&quot;", '"').replace("&amp;", "&"))
    assert result["color"] == "#4a7ab5" and result["stepColor"] == "#7a5ab5", result
    assert result["dragged"], result
    assert result["loads"] == 0, result  # nothing comes from elsewhere
    return result


def in_node(node: str, folder: pathlib.Path) -> dict:
    runner = pathlib.Path(__file__).with_suffix(".js")
    ran = subprocess.run(
        [node, runner, folder / "page.html"], check=True, stdout=subprocess.PIPE, text=True
    )
    result = json.loads(ran.stdout)
    assert result["drawn"] > 20, result
    return result


def main() -> None:
    tool, program = sys.argv[1:3]
    records.need(program, "chromium" if "BROWSER" in program else "node")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        events, page = records.run(tool, folder, records.two_hosts())
        is_node = pathlib.Path(program).name.startswith("node")
        result = in_node(program, folder) if is_node else in_browser(program, page, folder)
    assert result["slices"] == sum(e["ph"] == "X" for e in events), result
    assert abs(result["zoomed"] - 0.8) < 0.01 and abs(result["all"] - 1) < 0.01, result
    assert result["folded"], result
    assert "to rank 1, 50.000 us" in result["tip"] and "48.8 KiB" in result["tip"], result
    for text in ("to rank 1", "arrives at\trank 1 on node2, pid 7", "80.000 us", "eth0", "50000"):
        assert text in result["selected"], (text, result)
    assert result["found"] == "2 found", result
    assert "all_reduce/Ring/LL/any\t2\t5.000 us\t20.000 us\t100.000 us\t3.000 us" in result["phases"]
    assert "rank 0 on node1, pid 7: sends over eth0\t3\t146.5 KiB\t1.000 GB/s\t50.000 us" in (
        result["networks"]), result  # fmt: skip
    assert result["report"].startswith("communicator 00000000000000ff"), result


main()
