"""Proves that a GPU works where this program runs: ``verify_gpu.py [--any-version] [NAME …]``.

The default command of the base image, and run by ``doctor.py`` in each image. One line a check, ``PASS name:
what was found`` or ``FAIL name: what is wrong``; every check is made, whatever became of the others. Exit
status: 0 all passed, 1 otherwise. Needs nothing but Python. Source of the checks: protocol 4dcb-1, images.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

NVCC_RELEASE, TORCH, TORCH_CUDA = "13.0", "2.13.0", "13.0"
COMMAND_S, RENDER_S = 60, 300
EGL_VENDORS = (Path("/usr/share/glvnd/egl_vendor.d"), Path("/etc/glvnd/egl_vendor.d"))
EGL_LIBRARY = "libEGL_nvidia.so.0"

# Enumerations of EGL 1.5, EGL_EXT_platform_device and OpenGL.
_PLATFORM_DEVICE, _VENDOR, _OPENGL_API, _NONE = 0x313F, 0x3053, 0x30A2, 0x3038
_CONFIG = (0x3033, 0x0001, 0x3040, 0x0008, 0x3024, 8, 0x3023, 8, 0x3022, 8, 0x3021, 8, _NONE)
_SURFACE = (0x3057, 16, 0x3056, 16, _NONE)
_COLOUR_BIT, _RGBA, _UBYTE, _RENDERER = 0x4000, 0x1908, 0x1401, 0x1F01
_MOST_DEVICES = 32

_RENDER = """
import sys
import bpy
engine, path = sys.argv[sys.argv.index("--") + 1 :]
scene = bpy.context.scene
device = "EEVEE"
if engine == "cycles":
    preferences = bpy.context.preferences.addons["cycles"].preferences
    for device in ("OPTIX", "CUDA"):
        try:
            preferences.compute_device_type = device
        except TypeError:
            continue
        preferences.refresh_devices()
        if any(found.type == device for found in preferences.devices):
            break
    else:
        raise RuntimeError("Cycles finds no OPTIX and no CUDA device")
    for found in preferences.devices:
        found.use = found.type == device
    scene.render.engine = "CYCLES"
    scene.cycles.device = "GPU"
    scene.cycles.samples = 4
else:
    names = {item.identifier for item in scene.render.bl_rna.properties["engine"].enum_items}
    scene.render.engine = "BLENDER_EEVEE" if "BLENDER_EEVEE" in names else "BLENDER_EEVEE_NEXT"
scene.render.resolution_x = scene.render.resolution_y = 64
scene.render.resolution_percentage = 100
scene.render.image_settings.file_format = "PNG"
scene.render.filepath = path
bpy.ops.render.render(write_still=True)
print("4DCB rendered with " + device)
"""


class Fault(Exception):
    """What is wrong, in one line."""


def nvidia_smi() -> str:
    """The driver answers."""
    said = _run("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return "; ".join(line.strip() for line in said.splitlines() if line.strip()) or "no GPU is listed"


def nvcc(any_version: bool) -> str:
    """CUDA's compiler has the release that the image promises."""
    found = re.search(r"release ([0-9.]+)", _run("nvcc", "--version"))
    if found is None:
        raise Fault("nvcc --version names no release")
    if found[1] != NVCC_RELEASE and not any_version:
        raise Fault(f"nvcc has release {found[1]}, expected {NVCC_RELEASE}")
    return f"release {found[1]}"


def torch(any_version: bool) -> str:
    """PyTorch computes on the GPU."""
    try:
        import torch as library
    except ImportError as error:
        raise Fault(f"PyTorch cannot be imported: {error}") from error
    version, cuda = library.__version__.split("+")[0], library.version.cuda
    if not any_version and (version, cuda) != (TORCH, TORCH_CUDA):
        raise Fault(f"PyTorch {version} for CUDA {cuda}, expected {TORCH} for CUDA {TORCH_CUDA}")
    if not library.cuda.is_available():
        raise Fault(f"torch.cuda.is_available() is False (PyTorch {version} for CUDA {cuda})")
    matrix = library.ones((1024, 1024), device="cuda")
    product = matrix @ matrix
    if not product.is_cuda or float(product[0, 0]) != 1024.0:
        raise Fault("a product of two matrices was not computed on the GPU")
    return f"PyTorch {version} for CUDA {cuda} on {library.cuda.get_device_name(0)}"


def egl(vendor: str = "NVIDIA") -> str:
    """A picture can be drawn without a display by ``vendor``'s OpenGL, as Blender's EEVEE does."""
    try:
        library, opengl = ctypes.CDLL("libEGL.so.1"), ctypes.CDLL("libGL.so.1")
    except OSError as error:
        raise Fault(f"{error}; install libegl1 and libgl1 in the image") from error
    address = library.eglGetProcAddress
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    for name in ("eglGetPlatformDisplay", "eglCreateContext", "eglCreatePbufferSurface"):
        getattr(library, name).restype = ctypes.c_void_p
    library.eglQueryString.restype = ctypes.c_char_p
    query = address(b"eglQueryDevicesEXT")
    devices, count = (ctypes.c_void_p * _MOST_DEVICES)(), ctypes.c_int()
    kind = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    if not query or not kind(query)(_MOST_DEVICES, devices, ctypes.byref(count)):
        raise Fault(f"EGL lists no devices; {_why_no_egl()}")
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
            renderer = _draw(library, opengl, display)
            return f"{name}, {renderer}"
    raise Fault(f"EGL offers {', '.join(seen) or 'nothing'}, and not {vendor}; {_why_no_egl()}")


def _draw(library: ctypes.CDLL, opengl: ctypes.CDLL, display: ctypes.c_void_p) -> str:
    """Fill 16 x 16 pixels and read one back; returns the renderer's name."""
    config, count = ctypes.c_void_p(), ctypes.c_int()
    library.eglBindAPI(_OPENGL_API)
    library.eglChooseConfig(display, _words(_CONFIG), ctypes.byref(config), 1, ctypes.byref(count))
    if not count.value:
        raise Fault("EGL has no configuration for OpenGL")
    surface = ctypes.c_void_p(library.eglCreatePbufferSurface(display, config, _words(_SURFACE)))
    context = ctypes.c_void_p(library.eglCreateContext(display, config, None, _words((_NONE,))))
    if not library.eglMakeCurrent(display, surface, surface, context):
        raise Fault("EGL cannot make an OpenGL context current")
    opengl.glClearColor(*(ctypes.c_float(value) for value in (1.0, 0.0, 1.0, 1.0)))
    opengl.glClear(_COLOUR_BIT)
    pixel = (ctypes.c_ubyte * 4)()
    opengl.glReadPixels(3, 3, 1, 1, _RGBA, _UBYTE, pixel)
    opengl.glGetString.restype = ctypes.c_char_p
    name = (opengl.glGetString(_RENDERER) or b"").decode(errors="replace")
    library.eglMakeCurrent(display, None, None, None)
    library.eglTerminate(display)
    if bytes(pixel)[:3] != b"\xff\x00\xff":
        raise Fault(f"a pixel drawn by {name} is {tuple(pixel)}")
    return name


def _words(values: tuple[int, ...]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)


def _why_no_egl() -> str:
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


def cycles() -> str:
    """Blender's Cycles renders a frame on the GPU alone."""
    return _render("cycles")


def eevee() -> str:
    """Blender's EEVEE renders a frame without a display."""
    return _render("eevee")


def _render(engine: str) -> str:
    with tempfile.TemporaryDirectory(prefix="4dcb-verify-") as folder:
        script, picture = Path(folder, "render.py"), Path(folder, "frame.png")
        script.write_text(_RENDER, encoding="utf-8")
        words = ["blender", "--background", "--factory-startup", "--python-exit-code", "1"]
        said = _run(*words, "--python", str(script), "--", engine, str(picture), seconds=RENDER_S)
        if not picture.is_file() or not picture.stat().st_size:
            raise Fault("Blender ended well and wrote no picture")
    found = re.search(r"4DCB rendered with (\w+)", said)
    return f"a frame of {picture.suffix[1:].upper()} with {found[1] if found else engine}"


def _run(program: str, *words: str, seconds: int = COMMAND_S) -> str:
    """Standard output of a program that must end well."""
    if shutil.which(program) is None:
        raise Fault(f"{program} is not on PATH")
    try:
        done = subprocess.run(
            [program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Fault(f"{program} did not end within {seconds} s") from error
    if done.returncode != 0:
        said = [line for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if "Error" in line] or said[-1:] or [""]
        raise Fault(f"{program} ended with status {done.returncode}: {errors[-1].strip()[:200]}")
    return done.stdout


def checks(any_version: bool) -> dict[str, Callable[[], str]]:
    """Every check by its name, in order."""
    return {
        "nvidia-smi": nvidia_smi,
        "nvcc": lambda: nvcc(any_version),
        "torch": lambda: torch(any_version),
        "egl": egl,
        "cycles": cycles,
        "eevee": eevee,
    }


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="verify_gpu.py", allow_abbrev=False)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(checks(False))} (default: all)"
    )
    parser.add_argument("--any-version", action="store_true", help="take any release of CUDA and PyTorch")
    given = parser.parse_args(argv)
    known = checks(given.any_version)
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no check is called {unknown[0]}")
    good = True
    for name in given.names or known:
        try:
            text, passed = known[name](), True
        except Fault as fault:
            text, passed = str(fault), False
        except Exception as error:  # of a library that fails in a way of its own
            text, passed = f"{type(error).__name__}: {error}", False
        good &= passed
        sys.stdout.write(f"{'PASS' if passed else 'FAIL'} {name}: {' '.join(text.split())}\n")
        sys.stdout.flush()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
