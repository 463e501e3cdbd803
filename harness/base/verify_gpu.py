#!/usr/bin/env python3
"""Proves that a container's GPU can be used: ``verify_gpu.py [CHECK ...]``; all checks where none is named.

Runs alone, on the standard library: it is the base image's default command, lies in the agent and the scorer
image as ``/usr/local/bin/verify_gpu.py``, and the first check that fails ends it with status 1.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

CUDA, TORCH = "13.0", "2.13.0"
EGL_VENDORS = (Path("/usr/share/glvnd/egl_vendor.d"), Path("/etc/glvnd/egl_vendor.d"))
EGL_LIBRARY = "libEGL_nvidia.so.0"
CACHES = ("NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR")
RENDER_SECONDS = 600.0

# Enumerations of EGL 1.5, EGL_EXT_platform_device and OpenGL.
_PLATFORM_DEVICE, _VENDOR, _OPENGL_API, _NONE = 0x313F, 0x3053, 0x30A2, 0x3038
_CONFIG = (0x3033, 0x0001, 0x3040, 0x0008, 0x3024, 8, 0x3023, 8, 0x3022, 8, 0x3021, 8, _NONE)
_SURFACE = (0x3057, 16, 0x3056, 16, _NONE)
_COLOUR_BIT, _RGBA, _UBYTE, _RENDERER = 0x4000, 0x1908, 0x1401, 0x1F01
_MOST_DEVICES = 32

SCENE = """
import sys
import bpy

engine, picture = sys.argv[-2:]
scene = bpy.context.scene
scene.render.engine = engine
scene.render.resolution_x = scene.render.resolution_y = 64
scene.render.resolution_percentage = 100
scene.render.image_settings.file_format = "PNG"
scene.render.filepath = picture
"""

ON_GPU = """
preferences = bpy.context.preferences.addons["cycles"].preferences
for kind in ("OPTIX", "CUDA"):
    try:
        preferences.compute_device_type = kind
    except TypeError:
        continue
    if any(device.type == kind for device in preferences.get_devices_for_type(kind)):
        break
else:
    raise RuntimeError("Cycles sees no OptiX and no CUDA device")
for device in preferences.devices:
    device.use = device.type == kind
scene.cycles.device = "GPU"
scene.cycles.samples = 4
print("Cycles renders with", kind, *(device.name for device in preferences.devices if device.use))
"""

DRAW = """
bpy.ops.render.render(write_still=True)
"""

ON_TORCH = f"""
import torch

version = torch.__version__.partition("+")[0]
assert version == "{TORCH}", f"torch is {{version}}, not {TORCH}"
assert torch.version.cuda == "{CUDA}", f"torch was built for CUDA {{torch.version.cuda}}, not {CUDA}"
assert torch.cuda.is_available(), "torch sees no CUDA device"
square = torch.ones((1024, 1024), device="cuda")
product = square @ square
torch.cuda.synchronize()
assert product.is_cuda, f"the product lies on {{product.device}}"
assert float(product[0, 0]) == 1024, float(product[0, 0])
print("torch", torch.__version__, "on", torch.cuda.get_device_name())
"""


class Failed(Exception):
    """A check that did not hold; the text says what to look at."""


def run(*words: str, seconds: float = 120.0) -> str:
    """Output of a program, also shown. Raises ``Failed``."""
    if shutil.which(words[0]) is None:
        raise Failed(f"{words[0]} is not on the path")
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            timeout=seconds, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{words[0]} did not end within {seconds:g} s") from error
    print(done.stdout.strip(), flush=True)
    if done.returncode != 0:
        raise Failed(f"{words[0]} ended with status {done.returncode}")
    return done.stdout


def driver() -> None:
    """The driver answers."""
    run("nvidia-smi")


def toolkit() -> None:
    """The CUDA toolkit is the release that everything was built for."""
    if f"release {CUDA}" not in run("nvcc", "--version"):
        raise Failed(f"nvcc is not of CUDA {CUDA}")


def cycles() -> None:
    """Blender renders a picture with Cycles on the GPU, no CPU taking part."""
    render("CYCLES", SCENE + ON_GPU + DRAW)


def torch() -> None:
    """PyTorch multiplies on the GPU."""
    run(sys.executable, "-c", ON_TORCH)


def bpy() -> None:
    """Blender as a Python module can be imported."""
    run(sys.executable, "-c", "import bpy; print('bpy', bpy.app.version_string)")


def egl(vendor: str = "NVIDIA") -> None:
    """A picture can be drawn without a display, as EEVEE does, by NVIDIA's OpenGL."""
    try:
        library, opengl = ctypes.CDLL("libEGL.so.1"), ctypes.CDLL("libGL.so.1")
    except OSError as error:
        raise Failed(f"{error}; install libegl1 and libgl1 in the image") from error
    address = library.eglGetProcAddress
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    for name in ("eglGetPlatformDisplay", "eglCreateContext", "eglCreatePbufferSurface"):
        getattr(library, name).restype = ctypes.c_void_p
    library.eglQueryString.restype = ctypes.c_char_p
    query = address(b"eglQueryDevicesEXT")
    devices, count = (ctypes.c_void_p * _MOST_DEVICES)(), ctypes.c_int()
    kind = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    if not query or not kind(query)(_MOST_DEVICES, devices, ctypes.byref(count)):
        raise Failed(f"EGL lists no devices; {why_no_egl()}")
    seen = []
    for device in devices[: count.value]:
        display = ctypes.c_void_p(
            library.eglGetPlatformDisplay(_PLATFORM_DEVICE, ctypes.c_void_p(device), None)
        )
        if not display or not library.eglInitialize(display, None, None):
            continue
        name = (library.eglQueryString(display, _VENDOR) or b"").decode(errors="replace")
        seen.append(name)
        if vendor in name:
            print(f"EGL of {name}, OpenGL of {draw(library, opengl, display)}", flush=True)
            return
    raise Failed(f"EGL offers {', '.join(seen) or 'nothing'}, and not {vendor}; {why_no_egl()}")


def eevee() -> None:
    """Blender renders a picture with EEVEE."""
    render("BLENDER_EEVEE", SCENE + DRAW)


def caches() -> None:
    """What programs keep for themselves can be written."""
    places = {"the folder for temporary files": tempfile.gettempdir()}
    places |= {name: os.environ[name] for name in CACHES if os.environ.get(name)}
    for name, place in places.items():
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(1 << 20))
        except OSError as error:
            raise Failed(f"{name}, {place}, cannot be written: {error.strerror}") from error
    print("writable:", *places.values(), flush=True)


def render(engine: str, script: str) -> None:
    """Render one picture of Blender's default scene. Raises ``Failed``."""
    with tempfile.TemporaryDirectory() as folder:
        program, picture = Path(folder, "render.py"), Path(folder, "picture.png")
        program.write_text(script, encoding="ascii")
        # Without the option for the exit code an exception in the script is status 0.
        run(
            "blender", "--background", "--factory-startup", "--python-exit-code", "1",
            "--python", str(program), "--", engine, str(picture), seconds=RENDER_SECONDS,
        )  # fmt: skip
        if not picture.is_file() or picture.stat().st_size == 0:
            raise Failed(f"blender wrote no picture with {engine}")


def draw(library: ctypes.CDLL, opengl: ctypes.CDLL, display: ctypes.c_void_p) -> str:
    """Fill 16 x 16 pixels and read one back; returns the renderer's name."""
    config, count = ctypes.c_void_p(), ctypes.c_int()
    library.eglBindAPI(_OPENGL_API)
    library.eglChooseConfig(display, words(_CONFIG), ctypes.byref(config), 1, ctypes.byref(count))
    if not count.value:
        raise Failed("EGL has no configuration for OpenGL")
    surface = ctypes.c_void_p(library.eglCreatePbufferSurface(display, config, words(_SURFACE)))
    context = ctypes.c_void_p(library.eglCreateContext(display, config, None, words((_NONE,))))
    if not library.eglMakeCurrent(display, surface, surface, context):
        raise Failed("EGL cannot make an OpenGL context current")
    opengl.glClearColor(*(ctypes.c_float(value) for value in (1.0, 0.0, 1.0, 1.0)))
    opengl.glClear(_COLOUR_BIT)
    pixel = (ctypes.c_ubyte * 4)()
    opengl.glReadPixels(3, 3, 1, 1, _RGBA, _UBYTE, pixel)
    opengl.glGetString.restype = ctypes.c_char_p
    name = (opengl.glGetString(_RENDERER) or b"").decode(errors="replace")
    library.eglMakeCurrent(display, None, None, None)
    library.eglTerminate(display)
    if bytes(pixel)[:3] != b"\xff\x00\xff":
        raise Failed(f"a pixel drawn by {name} is {tuple(pixel)}")
    return name


def words(values: tuple[int, ...]) -> ctypes.Array[ctypes.c_int]:
    """Numbers as C sees them."""
    return (ctypes.c_int * len(values))(*values)


def why_no_egl() -> str:
    """The file that is missing."""
    vendors = [path for folder in EGL_VENDORS if folder.is_dir() for path in folder.glob("*nvidia*.json")]
    if not vendors:
        return f"{EGL_VENDORS[0] / '10_nvidia.json'} is missing"
    try:
        ctypes.CDLL(EGL_LIBRARY)
    except OSError:
        return (
            f"{EGL_LIBRARY} is missing, which the driver brings along: "
            "NVIDIA_DRIVER_CAPABILITIES must contain graphics, and the host needs the driver's OpenGL part"
        )
    return f"{vendors[0]} and {EGL_LIBRARY} are there: do the driver's versions inside and outside agree?"


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check for check in (driver, toolkit, cycles, torch, bpy, egl, eevee, caches)
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named checks, or all, until one fails. Returns the exit status."""
    summaries = "\n".join(f"  {name:9}{check.__doc__}" for name, check in CHECKS.items())
    parser = argparse.ArgumentParser(
        prog="verify_gpu.py",
        description="Prove that a container's GPU can be used.",
        epilog=f"checks:\n{summaries}\n\nExit status: 0 all held, 1 one failed, 2 wrong usage.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="only these (default: all)")
    names = parser.parse_args(argv).checks or list(CHECKS)
    for name in names:
        if name not in CHECKS:
            parser.error(f"no such check: {name} (expected: {', '.join(CHECKS)})")
    for name in names:
        print(f"=== {name}: {CHECKS[name].__doc__}", flush=True)
        try:
            CHECKS[name]()
        except Failed as failure:
            print(f"error: {name}: {failure}", file=sys.stderr)
            return 1
    print(f"=== all held: {' '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
