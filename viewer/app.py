"""The web application: routes, headers on every answer, and whom it answers."""

from __future__ import annotations

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from viewer.answers import problem, respond
from viewer.api import Api, threaded
from viewer.assets import Asset, load, policy
from viewer.trees import Trees

PAGE = "index.html"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
_METHODS = ("GET", "HEAD")
_RUN = "{kind}/{case}/{system}/{trial}"


def make_app(trees: Trees, hosts: Collection[str] = LOOPBACK) -> ASGIApp:
    """The application. ``hosts``: names under which it answers, ``*`` for any."""
    api, assets = Api(trees), load()
    routes = {
        "/api/health": api.health,
        "/api/runs": api.runs,
        "/api/metrics": api.metrics,
        "/api/cases": api.cases,
        "/api/case/{kind}/{case}": api.case,
        f"/api/run/{_RUN}": api.run,
        f"/api/series/{_RUN}": api.series,
        f"/api/text/{_RUN}": api.text,
        f"/api/transcript/{_RUN}": api.transcript,
        f"/api/image/{_RUN}": api.image,
        "/api/report": api.report,
        "/api/report.{format}": api.export,
        "/api/pivot": api.pivot,
        "/api/mesh/{world:path}/index": api.mesh_index,
        "/api/mesh/{world:path}/packet/{number}": api.mesh_packet,
        "/video/case/{kind}/{case}/reference.mp4": api.case_video,
        "/video/world/{world:path}/render.mp4": api.render,
        f"/video/viz/{_RUN}/{{file}}": api.viz,
    }

    async def page(request: Request) -> Response:
        return _asset(request, assets[PAGE])

    async def static(request: Request) -> Response:
        found = assets.get(request.path_params["path"])
        return problem(request, 404, "no such file of the app") if found is None else _asset(request, found)

    async def nothing(request: Request) -> Response:
        return problem(request, 404, "no such address")

    app = Starlette(
        routes=[
            *(Route(path, threaded(handler), methods=_METHODS) for path, handler in routes.items()),
            Route("/", page, methods=_METHODS),
            Route("/static/{path:path}", static, methods=_METHODS),
            Route("/{path:path}", nothing, methods=_METHODS),
        ]
    )
    return Guard(app, policy(assets[PAGE].body), hosts)


def _asset(request: Request, asset: Asset) -> Response:
    return respond(request, asset.body, zipped=asset.zipped, etag=asset.etag, kind=asset.kind)


class Guard:
    """Refuses hosts that are not ours (a foreign page could rebind its name to this machine), and puts the
    same protective headers on every answer.
    """

    def __init__(self, app: ASGIApp, csp: str, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, frozenset(hosts)
        self.headers = {
            "Content-Security-Policy": csp,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers[name] = value
            await send(message)

        request = Request(scope)
        if "*" not in self.hosts and host_of(request.headers.get("host", "")) not in self.hosts:
            answer = problem(request, 400, "this viewer is not served under that host name")
            await answer(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)


def host_of(header: str) -> str:
    """A ``Host`` header without its port."""
    if header.startswith("["):
        return header.split("]", 1)[0] + "]"
    return header.rsplit(":", 1)[0] if header.count(":") == 1 else header
