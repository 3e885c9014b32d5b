"""Images of every kind: what is stored has the pixels that were logged."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trackio
from PIL import Image
from torchrl.record.loggers import get_logger

from reading import logged_file, media, new_name, rows, series
from torchrl_trackio import TrackioLogger, TrackioWarning


def stored(logger: TrackioLogger, image: Any, **options: Any) -> Path:
    """The file of an image that is logged."""
    return logged_file(logger.log_image, image, **options)


def pixels(path: Path) -> tuple[str, np.ndarray]:
    """Mode and pixels of a stored PNG."""
    with Image.open(path) as image:
        assert image.format == "PNG"
        return image.mode, np.array(image)


def noise(*shape: int) -> np.ndarray:
    """An image or images without two equal pixels in a row."""
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


SHAPES: dict[str, Callable[[np.ndarray], Any]] = {
    "(H, W, C)": torch.from_numpy,
    "(C, H, W)": lambda image: torch.from_numpy(image).permute(2, 0, 1),
    "contiguous (C, H, W)": lambda image: torch.from_numpy(image).permute(2, 0, 1).contiguous(),
    "array (H, W, C)": lambda image: image,
    "array (C, H, W)": lambda image: image.transpose(2, 0, 1),
    "flipped array": lambda image: image[::-1, ::-1].copy()[::-1, ::-1],
    "every other line": lambda image: torch.from_numpy(image.repeat(2, 0))[::2],
    "batch of one": lambda image: torch.from_numpy(image)[None],
}


@pytest.mark.parametrize("arrange", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")], ids=["gray", "RGB", "RGBA"])
def test_every_shape_and_number_of_channels(
    shared: TrackioLogger, arrange: Callable[[np.ndarray], Any], channels: int, mode: str
) -> None:
    """Channels first or last, contiguous or not: the stored pixels are the given ones, with the given channels."""
    image = noise(5, 7, channels)
    found, shown = pixels(stored(shared, arrange(image)))
    assert found == mode
    np.testing.assert_array_equal(shown, image[..., 0] if channels == 1 else image)


@pytest.mark.parametrize("size", [(5, 7), (1, 1), (3, 4)], ids=str)
def test_two_dimensions_are_gray(shared: TrackioLogger, size: tuple[int, int]) -> None:
    """(H, W) needs no channel, also where H or W could be one."""
    found, shown = pixels(stored(shared, torch.from_numpy(noise(*size))))
    assert found == "L"
    np.testing.assert_array_equal(shown, noise(*size))


def full(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A gray image of one value."""
    return torch.full((5, 7), value).to(dtype)


TYPES: dict[str, tuple[Any, int]] = {
    "uint8": (full(200, torch.uint8), 200),
    "int64": (full(200, torch.int64), 200),
    "int16 beyond 255": (full(300, torch.int16), 255),
    "int8 below 0": (full(-5, torch.int8), 0),
    "bool": (full(1, torch.bool), 255),
    "float32": (full(0.8, torch.float32), 204),
    "float64": (full(0.8, torch.float64), 204),
    "bfloat16": (full(0.5, torch.bfloat16), 128),
    "float8": (full(0.5, torch.float8_e4m3fn), 128),
    "float a little beyond 1": (full(1.001, torch.float32), 255),
    "float to 255": (full(200.0, torch.float32), 200),
    "NaN": (full(math.nan, torch.float32), 0),
    "infinity": (full(math.inf, torch.float32), 255),
    "requires grad": (full(0.8, torch.float32).requires_grad_(), 204),
    "Parameter": (torch.nn.Parameter(full(0.8, torch.float32)), 204),
    "expanded": (torch.tensor(200, dtype=torch.uint8).expand(5, 7), 200),
    "float array": (np.full((5, 7), 0.8), 204),
    "big-endian array": (np.full((5, 7), 200, ">u2"), 200),
    "longdouble array": (np.full((5, 7), 0.8, np.longdouble), 204),
    "PIL float": (Image.new("F", (7, 5), 0.8), 204),
    "PIL int": (Image.new("I", (7, 5), 200), 200),
}


@pytest.mark.parametrize(("image", "shade"), TYPES.values(), ids=TYPES)
def test_every_type_of_number(shared: TrackioLogger, image: Any, shade: int) -> None:
    """Integers in [0, 255] and floats in [0, 1] or [0, 255] are as bright as they were; the rest is clipped."""
    found, shown = pixels(stored(shared, image))
    assert found == "L"
    np.testing.assert_array_equal(shown, np.full((5, 7), shade))


def test_negative_floats(shared: TrackioLogger) -> None:
    """They are black, as where observations were normalised, and that is said."""
    with pytest.warns(TrackioWarning, match=r"an image's negative values are black: map them to \[0, 1\]"):
        path = stored(shared, torch.tensor([[-0.5, 0.2]]))
    np.testing.assert_array_equal(pixels(path)[1], [[0, 51]])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_an_image_on_a_gpu(shared: TrackioLogger) -> None:
    """It is copied from the device."""
    _, shown = pixels(stored(shared, torch.from_numpy(noise(5, 7, 3)).cuda()))
    np.testing.assert_array_equal(shown, noise(5, 7, 3))


GRIDS = {1: (1, 1), 2: (1, 2), 3: (2, 2), 4: (2, 2), 5: (2, 3), 7: (3, 3)}


@pytest.mark.parametrize(("count", "grid"), GRIDS.items(), ids=map(str, GRIDS))
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_batch_is_tiled_in_a_grid(
    shared: TrackioLogger, count: int, grid: tuple[int, int], last: bool, channels: int
) -> None:
    """N images lie row by row in a grid as square as can be; what is left of it is black, or transparent."""
    batch = noise(count, 5, 7, channels)
    _, shown = pixels(stored(shared, batch if last else batch.transpose(0, 3, 1, 2)))
    assert shown.shape[:2] == (5 * grid[0], 7 * grid[1])
    empty = np.zeros((5, 7, channels), np.uint8)
    for index in range(grid[0] * grid[1]):
        top, left = 5 * (index // grid[1]), 7 * (index % grid[1])
        tile = shown[top : top + 5, left : left + 7].reshape(5, 7, channels)
        np.testing.assert_array_equal(tile, batch[index] if index < count else empty)


def colored(mode: str) -> Image.Image:
    """A PIL image of a mode, with some colours."""
    return Image.fromarray(noise(5, 7, 3)).convert(mode)


MODES: dict[str, tuple[Image.Image, str]] = {
    **{mode: (colored(mode), mode) for mode in ("1", "L", "P", "LA", "RGB", "RGBA")},
    **{mode: (colored(mode), "RGB") for mode in ("CMYK", "YCbCr", "HSV", "RGBX")},
    "PA": (colored("P").convert("PA"), "RGBA"),
    "RGBa": (Image.fromarray(noise(5, 7, 4)).convert("RGBa"), "RGBA"),
}


@pytest.mark.parametrize(("image", "mode"), MODES.values(), ids=MODES)
def test_every_mode_of_pil(shared: TrackioLogger, image: Image.Image, mode: str) -> None:
    """What PNG knows stays as it is, palettes, too; other modes lose neither colour nor transparency."""
    path = stored(shared, image)
    with Image.open(path) as shown:
        assert shown.mode == mode
        np.testing.assert_array_equal(np.array(shown.convert("RGBA")), np.array(image.convert(mode).convert("RGBA")))


DEEP = np.array([[0, 255, 256], [4000, 65535, 70000]])


@pytest.mark.parametrize(
    "image",
    [Image.fromarray(DEEP.astype(np.int32)), Image.fromarray(DEEP.clip(0, 65535).astype(np.uint16))],
    ids=["int32", "uint16"],
)
def test_sixteen_bits_are_kept(shared: TrackioLogger, image: Image.Image) -> None:
    """PIL images with 16 bits a pixel are stored with them, and clipped beyond."""
    found, shown = pixels(stored(shared, image))
    assert found == "I;16"
    np.testing.assert_array_equal(shown, DEEP.clip(0, 65535))


def test_a_transparent_colour_of_a_palette_stays_transparent(shared: TrackioLogger) -> None:
    """As gifs have it."""
    image = Image.new("P", (7, 5), 1)
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.info["transparency"] = 1
    with Image.open(stored(shared, image)) as shown:
        assert shown.convert("RGBA").getpixel((0, 0)) == (40, 50, 60, 0)


def test_images_may_be_changed_after_the_call(shared: TrackioLogger) -> None:
    """Tensor, array and PIL image: what is stored is what they were at the call."""
    buffer, array, picture = (
        torch.full((5, 7), 9, dtype=torch.uint8),
        np.full((5, 7), 9, np.uint8),
        Image.new("L", (7, 5), 9),
    )
    for name, image in (("tensor", buffer), ("array", array), ("picture", picture)):
        shared.log_image(name, image, step=1)
    buffer.zero_()
    array[:] = 0
    picture.paste(0, (0, 0, 7, 5))
    shared.flush()
    for name in ("tensor", "array", "picture"):
        ((_, path),) = media(shared.log_dir, name)
        np.testing.assert_array_equal(pixels(path)[1], np.full((5, 7), 9))


def entry(path: Path) -> os.DirEntry[bytes]:
    """A path in another form."""
    return {found.name: found for found in os.scandir(os.fsencode(path.parent))}[os.fsencode(path.name)]


SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="7" height="5"/>'


@pytest.mark.parametrize(
    "name", ["a.png", "a.jpg", "a.gif", "a.webp", "a.bmp", "a.svg", "a png.called.jpg", "no-suffix"]
)
@pytest.mark.parametrize("kind", [str, Path, entry], ids=["str", "Path", "other PathLike"])
def test_a_file_that_browsers_show_is_stored_as_it_is(
    shared: TrackioLogger, tmp_path: Path, name: str, kind: Callable[[Path], Any]
) -> None:
    """Byte for byte, whatever its name says, and also if it is deleted after the call."""
    path = tmp_path / name
    if name == "a.svg":
        path.write_bytes(SVG)
    else:
        colored("RGB").save(path, None if name.startswith("a.") else "png")
    content = path.read_bytes()
    metric = new_name()
    shared.log_image(metric, kind(path), step=1)
    path.unlink()
    shared.flush()
    ((_, found),) = media(shared.log_dir, metric)
    assert found.read_bytes() == content


def test_other_files_become_png(shared: TrackioLogger, tmp_path: Path) -> None:
    """With all their bits, and turned as they are meant to be seen."""
    Image.fromarray(DEEP.clip(0, 65535).astype(np.uint16)).save(tmp_path / "deep.tiff")
    np.testing.assert_array_equal(pixels(stored(shared, tmp_path / "deep.tiff"))[1], DEEP.clip(0, 65535))
    turned = Image.Exif()
    turned[0x0112] = 3  # by 180 degrees
    colored("RGB").save(tmp_path / "turned.tiff", exif=turned)
    np.testing.assert_array_equal(pixels(stored(shared, tmp_path / "turned.tiff"))[1], noise(5, 7, 3)[::-1, ::-1])


def test_an_image_shares_the_row_of_its_step_and_has_a_caption(logger: TrackioLogger, project: str) -> None:
    """It is one value of the step, counted on like any other."""
    logger.log_scalar("x", 1.0, step=3)
    logger.log_image("i", noise(5, 7), step=3, caption="a ⚑ caption")
    logger.log_image("i", noise(5, 7))
    logger.flush()
    first, second = ({**row, "i": {k: v for k, v in row["i"].items() if k != "file_path"}} for _, row in rows(project))
    assert first == {"x": 1.0, "i": {"_type": "trackio.image", "caption": "a ⚑ caption"}}
    assert second == {"i": {"_type": "trackio.image", "caption": None}}
    assert [step for step, _ in series(project, "i")] == [3, 4]


def test_trackios_own_image_passes(shared: TrackioLogger) -> None:
    """As it is, as often as one likes; a caption goes to what is stored, not to the object."""
    image = trackio.Image(noise(5, 7, 3), caption="mine")
    for caption, shown in ((None, "mine"), ("other", "other")):
        name = new_name()
        shared.log_image(name, image, step=1, caption=caption)
        shared.flush()
        ((_, value),) = series(shared.log_dir, name)
        assert value["caption"] == shown
    assert image.caption == "mine"


@pytest.mark.skipif(
    "service_backend" not in inspect.signature(get_logger).parameters,
    reason="this torchrl has no logger services, which came with 0.14",
)
def test_an_image_through_a_service(project: str) -> None:
    """A logger in a process of its own stores the same pixels, of tensor and PIL image."""
    options = {"trackio_kwargs": {"project": project}, "service_backend": "process"}
    with get_logger("trackio", "logs", "run", **options) as service:
        client = service.client()
        client.log_image("tensor", torch.from_numpy(noise(5, 7, 3)), step=2, caption="c")
        client.log_image("picture", Image.fromarray(noise(5, 7, 3)))
        with pytest.raises(RuntimeError, match=r"'log_image' failed: ValueError.*shape \(2, 5, 7\)"):
            client.log_image("bad", torch.zeros(2, 5, 7))
        service.flush()
        for name, step in (("tensor", 2), ("picture", 0)):
            ((found, path),) = media(project, name)
            assert found == step
            np.testing.assert_array_equal(pixels(path)[1], noise(5, 7, 3))


SHAPE = (
    "an image must have the shape (H, W), (C, H, W) or, for several, (N, C, H, W), or the channels last, with 1, 3 or "
    "4 channels and at least one pixel; got"
)
TYPE = (
    "an image must be a tensor or array of integers or floats, a PIL image, the path of an image file or a "
    "trackio.Image, got"
)
FLOAT = "and dtype torch.float32"
BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "one dimension": (torch.zeros(8), {}, ValueError, f"{SHAPE} Tensor of shape (8,) {FLOAT}"),
    "a video": (torch.zeros(1, 2, 3, 8, 8), {}, ValueError, f"{SHAPE} Tensor of shape (1, 2, 3, 8, 8) {FLOAT}"),
    "two channels": (torch.zeros(2, 8, 8), {}, ValueError, f"{SHAPE} Tensor of shape (2, 8, 8) {FLOAT}"),
    "no images": (torch.zeros(0, 3, 8, 8), {}, ValueError, f"{SHAPE} Tensor of shape (0, 3, 8, 8) {FLOAT}"),
    "no height": (np.zeros((0, 8)), {}, ValueError, f"{SHAPE} ndarray of shape (0, 8) and dtype float64"),
    "None": (None, {}, TypeError, f"{TYPE} None (NoneType)"),
    "list": ([[1]], {}, TypeError, f"{TYPE} [[1]] (list)"),
    "complex": (
        torch.zeros(8, 8, dtype=torch.complex64),
        {},
        TypeError,
        f"{TYPE} Tensor of shape (8, 8) and dtype torch.complex64",
    ),
    "text array": (np.full((8, 8), "a"), {}, TypeError, f"{TYPE} ndarray of shape (8, 8) and dtype <U1"),
    "meta": (
        torch.zeros(8, 8, device="meta"),
        {},
        TypeError,
        f"{TYPE} Tensor of shape (8, 8) {FLOAT}, on device meta with layout torch.strided",
    ),
    "other media": (trackio.Html("h"), {}, TypeError, f"{TYPE} <trackio.media.html.TrackioHtml object at"),
    "no file": (
        "missing.png",
        {},
        ValueError,
        "an image was to be read from 'missing.png', where there is nothing: pass the path of an existing file",
    ),
    "folder": (
        Path(),
        {},
        ValueError,
        "an image was to be read from '.', which is no file: pass the path of an existing file",
    ),
    "no image": (__file__, {}, ValueError, f"{__file__!r} is no image that Pillow reads: "),
    "caption": (torch.zeros(8, 8), {"caption": 5}, TypeError, "a caption must be a string, got 5 (int)"),
    "caption of no Unicode": (torch.zeros(8, 8), {"caption": "\ud800"}, ValueError, "a caption must be valid Unicode"),
}


@pytest.mark.parametrize(("image", "options", "error", "message"), BAD.values(), ids=BAD)
def test_bad_images_are_refused_at_the_call(
    logger: TrackioLogger,
    project: str,
    image: Any,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    """The call raises, and says what it got and takes; the step's other values stay, and no count moves."""
    logger.log_scalar("x", 1.0, step=3)
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        logger.log_image("i", image, **options)
    logger.log_scalar("i", 3.0)
    logger.flush()
    assert rows(project) == [(3, {"x": 1.0}), (0, {"i": 3.0})]


@pytest.mark.parametrize("length", [0, 2, 60])
def test_a_broken_file_is_refused(shared: TrackioLogger, tmp_path: Path, length: int) -> None:
    """What has to be converted is read at the call."""
    path = tmp_path / "a.ppm"
    colored("RGB").save(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"a\.ppm' is no image that Pillow reads: "):
        shared.log_image("broken", path)
