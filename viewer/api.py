"""What the web app asks for. Every handler reads; each runs in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from contract.aggregate import OVERALL_RULE
from contract.cases import KINDS
from contract.errors import UserError
from contract.metrics import FAMILIES, MAIN_FAMILIES, METRICS
from contract.names import CASES, REFERENCE_VIDEO, RESULTS, REWARD_DETAIL, VIZ
from contract.states import STATES
from report.build import GROUPINGS
from report.tables import FORMATS
from viewer.answers import encode, packed, problem, respond
from viewer.cases import case_files, case_names
from viewer.clips import clip
from viewer.files import TYPES, file_response
from viewer.geometry import NoGeometry, describe
from viewer.index import Entry, Index
from viewer.readjson import Broken, read_record
from viewer.results import EXPORTS, Results, Selection
from viewer.rows import COLUMNS
from viewer.runview import run_view
from viewer.series import read_series
from viewer.texts import read_page
from viewer.transcripts import transcript_files, transcript_image, transcript_page
from viewer.trees import Absent, Trees, open_file
from viewer.worlds import Worlds, render_place, world_place

Handler = Callable[[Request], Response]


class Api:
    """The routes' handlers over one set of trees."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.index = Index(trees.runs)
        self.worlds = Worlds(trees)
        self.results = Results(self.index)
        self._all: tuple[int, bytes, bytes] | None = None

    def health(self, request: Request) -> Response:
        return respond(request, encode({"ok": True, "runs": len(self.index.snapshot().entries)}))

    def runs(self, request: Request) -> Response:
        """All rows, or with ``since=<index>.<version>`` what changed after that."""
        snapshot = self.index.snapshot()
        name, _, since = request.query_params.get("since", "").rpartition(".")
        etag = f'"{self.index.name}.{snapshot.version}.{since}"'
        head = {"index": self.index.name, "version": snapshot.version, "columns": COLUMNS}
        if name == self.index.name and since.isdigit():
            after = int(since)
            rows = [entry.row for entry in snapshot.entries.values() if entry.version > after]
            gone = [key for key, version in snapshot.gone.items() if version > after]
            return respond(request, encode({**head, "rows": rows, "gone": gone}), etag=etag)
        kept = self._all
        if kept is None or kept[0] != snapshot.version:
            body = encode({**head, "rows": [entry.row for entry in snapshot.entries.values()], "gone": None})
            kept = self._all = (snapshot.version, body, packed(body))
        return respond(request, kept[1], zipped=kept[2], etag=etag)

    def metrics(self, request: Request) -> Response:
        """The metric table."""
        table = [
            {
                "key": metric.key,
                "label": metric.label,
                "family": metric.family,
                "type": metric.type,
                "definition": metric.definition,
                "kinds": metric.kinds,
                "low": metric.low,
                "high": metric.high,
                "up": metric.higher_is_better,
                "cosine": metric.cosine,
                "excluded": sorted(metric.excluded),
                "worst": metric.worst,
            }
            for metric in METRICS
        ]
        record = {
            "metrics": table,
            "families": FAMILIES,
            "main": MAIN_FAMILIES,
            "states": STATES,
            "kinds": KINDS,
            "rule": OVERALL_RULE,
        }
        return respond(request, encode(record))

    def cases(self, request: Request) -> Response:
        """Names of all cases: those with files, and those that only runs know."""
        known = set(case_names(self.trees)) | {
            entry.run.case for entry in self.index.snapshot().entries.values()
        }
        return respond(request, encode({"cases": sorted(known)}))

    def case(self, request: Request) -> Response:
        """What there is of a case."""
        name = "/".join((request.path_params["kind"], request.path_params["case"]))
        files = case_files(self.trees, name)
        runs = [entry.row for entry in self.index.of_case(name)]
        if not (any(files.values()) or runs):
            raise Absent(f"there is no case {name}")
        video = clip(self.trees.cases, (*name.split("/"), REFERENCE_VIDEO)) if files["video"] else None
        record = {"case": name, "files": files, "video": video, "columns": COLUMNS, "rows": runs}
        if files["render"]:
            root, parts = render_place(self.trees, f"data/{name}")
            record["render"] = clip(root, parts)
        return respond(request, encode(record))

    def run(self, request: Request) -> Response:
        return respond(request, encode(run_view(self.trees, self._entry(request))))

    def series(self, request: Request) -> Response:
        entry = self._entry(request)
        try:
            detail = read_record(self.trees.runs, (*entry.place.parts, RESULTS, REWARD_DETAIL)) or {}
        except Broken:
            detail = {}
        return respond(request, encode({"series": read_series(self.trees.runs, entry.place.parts, detail)}))

    def text(self, request: Request) -> Response:
        entry, query = self._entry(request), request.query_params
        return respond(
            request,
            encode(read_page(self.trees, entry.place.parts, query.get("path", ""), _int(query.get("start")))),
        )

    def transcript(self, request: Request) -> Response:
        """The list of transcripts, or a page of one."""
        entry, query = self._entry(request), request.query_params
        run = entry.place.parts
        if "path" not in query:
            return respond(request, encode({"files": transcript_files(self.trees, run)}))
        start, count = _int(query.get("start")), _int(query.get("count"), 200)
        return respond(request, encode(transcript_page(self.trees, run, query["path"], start, count)))

    def image(self, request: Request) -> Response:
        entry, query = self._entry(request), request.query_params
        data, kind = transcript_image(
            self.trees, entry.place.parts, query.get("path", ""), _int(query.get("at")), _int(query.get("n"))
        )
        return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    def report(self, request: Request) -> Response:
        return respond(request, encode(self.results.as_record(_selection(request))))

    def pivot(self, request: Request) -> Response:
        key = request.query_params.get("metric", "Overall")
        if key != "Overall" and key not in {metric.key for metric in METRICS}:
            raise Absent(f"there is no metric {key!r}")
        return respond(request, encode(self.results.pivot(_selection(request), key)))

    def export(self, request: Request) -> Response:
        """The report as a file in one of the command line's formats."""
        style = request.path_params["format"]
        if style not in EXPORTS:
            raise Absent(f"there is no format {style!r}")
        kind, suffix = EXPORTS[style]
        body = FORMATS[style](self.results.report(_selection(request))).encode("utf-8")
        headers = {"Content-Disposition": f'attachment; filename="report.{suffix}"'}
        return respond(request, body, kind=f"{kind}; charset=utf-8", headers=headers)

    def mesh_index(self, request: Request) -> Response:
        name = request.path_params["world"]
        shape, _ = self.worlds.shape(name)
        root, parts = world_place(self.trees, name)
        return respond(request, encode(describe(root, parts, shape)))

    def mesh_packet(self, request: Request) -> Response:
        number = request.path_params["number"]
        body = self.worlds.packet(request.path_params["world"], -1 if number == "base" else _int(number, -2))
        # Positions hardly shrink; the time to compress them is worth more on a local network.
        return respond(request, body, compress=False, kind="application/octet-stream")

    def case_video(self, request: Request) -> Response:
        params = request.path_params
        return self._file(request, self.trees.root(CASES), (params["kind"], params["case"], REFERENCE_VIDEO))

    def render(self, request: Request) -> Response:
        root, parts = render_place(self.trees, request.path_params["world"])
        return self._file(request, root, parts)

    def viz(self, request: Request) -> Response:
        entry = self._entry(request)
        return self._file(request, self.trees.runs, (*entry.place.parts, VIZ, request.path_params["file"]))

    def _file(self, request: Request, root: Any, parts: tuple[str, ...]) -> Response:
        name = parts[-1]
        kind = TYPES.get(f".{name.rsplit('.', 1)[-1]}")
        if kind is None:
            raise Absent(f"{name}: not a kind of file that is served")
        return file_response(request, open_file(root, parts), kind)

    def _entry(self, request: Request) -> Entry:
        params = request.path_params
        name = "/".join(params[level] for level in ("kind", "case", "system", "trial"))
        entry = self.index.entry(name)
        if entry is None:
            raise Absent(f"there is no run {name}")
        return entry


def _selection(request: Request) -> Selection:
    query = request.query_params
    by, kind = query.get("by", "system"), query.get("kind", "")
    if by not in GROUPINGS or kind not in ("", *KINDS):
        raise Absent("not a way to group, or not a kind of case")
    return Selection(by, kind, tuple(query.getlist("system")), tuple(query.getlist("case")))


def _int(value: str | None, default: int = 0) -> int:
    try:
        found = int(value) if value is not None and len(value) < 20 else default
    except ValueError:
        return default
    return found


def threaded(handler: Handler) -> Any:
    """The handler as a route's endpoint; what cannot be shown becomes an answer that says why."""

    async def endpoint(request: Request) -> Response:
        try:
            return await run_in_threadpool(handler, request)
        except Absent as error:
            return problem(request, 404, str(error))
        except (NoGeometry, UserError) as error:
            return problem(request, 422, str(error))
        except OSError as error:
            return problem(request, 500, error.strerror or "cannot be read")

    return endpoint
