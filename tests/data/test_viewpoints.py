"""The renderer on bodies with known pictures, and the synthetic data set of viewpoints."""

import math

import pytest
import torch

from torchcaps.data.datasets.small_norb import CATEGORIES, FAMILIAR_AZIMUTHS, FAMILIAR_ELEVATIONS
from torchcaps.data.synthetic import rendering
from torchcaps.data.synthetic.rendering import Light, box, ellipsoid, fit_body, limb, render
from torchcaps.data.synthetic.viewpoints import (
    AZIMUTHS,
    BACKGROUND,
    ELEVATIONS,
    IMAGE_SIZE,
    INSTANCES,
    LIGHTS,
    RADIUS,
    Viewpoints,
    instance_body,
    render_instances,
)
from torchcaps.errors import DataError

DARK = (Light(azimuth=0, elevation=0, strength=0, ambient=0),)
BALL = ellipsoid((0, 0, 0), (1, 1, 1))


def silhouette(body, azimuth, elevation, pixels=40, scale=15.0):
    """The share of each pixel that the body covers: black on white."""
    views = torch.tensor([[azimuth, elevation]])
    return 1 - render(body, views, DARK, pixels=pixels, scale=scale, background=1.0)[0, 0] / 255


def seen(body, azimuth=0.0, elevation=0.0, points=((0.0, 0.0),)):
    """Which rays hit, and the normals where they do; the points are right and up on the screen."""
    frames = rendering.camera_frames(torch.tensor([[azimuth, elevation]]))
    return rendering.cast(body, frames, torch.tensor(points).T)


# The renderer


@pytest.mark.parametrize(("azimuth", "elevation"), [(0, 0), (20, 30), (215, 70)])
def test_a_ball_is_a_disc_from_everywhere(azimuth, elevation):
    covered = silhouette([BALL], azimuth, elevation)
    assert covered.sum().item() == pytest.approx(math.pi * 15**2, rel=0.005)
    middles = torch.arange(40) - 19.5
    distance = (middles[:, None] ** 2 + middles**2).sqrt()
    assert (covered[distance < 14.2] == 1).all()
    assert (covered[distance > 15.8] == 0).all()


@pytest.mark.parametrize("taper", [1.0, 0.5])
@pytest.mark.parametrize(("azimuth", "across"), [(0, 0.4), (90, 0.8), (180, 0.4), (270, 0.8)])
def test_a_box_is_a_rectangle_or_a_trapezium_from_the_front_and_the_side(azimuth, across, taper):
    covered = silhouette([box((0, 0, 0), (0.8, 0.4, 0.6), taper=taper)], azimuth, 0)
    edges = torch.linspace(2 * across * 15 * taper, 2 * across * 15, 19)  # 18 rows, 9 above and 9 below the middle
    torch.testing.assert_close(covered.sum(1)[11:29], (edges[:-1] + edges[1:]) / 2, atol=0.7, rtol=0)
    assert covered.sum().item() == pytest.approx(across * 15 * (1 + taper) * 18, rel=0.02)


def test_a_cylinder_and_a_cone_from_the_side_and_from_the_tip():
    rod = limb((0, 0, -0.6), (0, 0, 0.6), 0.4)
    cone = limb((0, 0, -0.6), (0, 0, 0.6), 0.4, taper=0.0)
    assert silhouette([rod], 30, 0).sum().item() == pytest.approx(0.96 * 15**2, rel=0.02)
    assert silhouette([cone], 30, 0).sum().item() == pytest.approx(0.48 * 15**2, rel=0.02)
    for part in (rod, cone):
        assert silhouette([part], 0, 90).sum().item() == pytest.approx(math.pi * 0.16 * 15**2, rel=0.02)
        assert silhouette([part], 0, -90).sum().item() == pytest.approx(math.pi * 0.16 * 15**2, rel=0.02)


def test_normals_are_unit_vectors_towards_the_camera():
    for category in CATEGORIES:
        body, _ = instance_body(category, 0)
        frames = rendering.camera_frames(torch.tensor([[0.0, 30.0], [140.0, 50.0]]))
        hit, normals = rendering.cast(body, frames, rendering.screen_points(32, 15.0, 1))
        assert len(normals) == hit.sum() > 100
        torch.testing.assert_close(normals.norm(dim=1), torch.ones(len(normals)))
        away = (normals * frames[hit.nonzero()[:, 0], 2]).sum(1)
        assert away.max() < 1e-3


def test_normals_of_known_faces():
    def normal(body, azimuth, elevation, point=(0.0, 0.0)):
        return seen([body], azimuth, elevation, (point,)).normals[0]

    cube = box((0, 0, 0), (1, 0.5, 0.7))
    for azimuth, wanted in ((0, [1, 0, 0]), (90, [0, 1, 0]), (180, [-1, 0, 0]), (270, [0, -1, 0])):
        torch.testing.assert_close(normal(cube, azimuth, 0), torch.tensor(wanted).float(), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal(cube, 0, 90), torch.tensor([0.0, 0, 1]), atol=1e-5, rtol=0)
    ball = ellipsoid((0.3, -0.2, 0.1), (1, 1, 1))
    torch.testing.assert_close(normal(ball, 0, 0, (-0.2 + 0.6, 0.1)), torch.tensor([0.8, 0.6, 0]), atol=1e-5, rtol=0)
    cone = limb((0, 0, -1), (0, 0, 1), 1.0, taper=0.0)  # twice as high as wide
    torch.testing.assert_close(normal(cone, 0, 0), torch.tensor([2.0, 0, 1]) / math.sqrt(5), atol=1e-5, rtol=0)
    raised = box((0, 0, 0), (1, 1, 1), pitch=30)
    torch.testing.assert_close(normal(raised, 0, 30), torch.tensor([3**0.5, 0, 1]) / 2, atol=1e-5, rtol=0)


def test_the_nearest_primitive_wins_in_any_order():
    ball, wall = ellipsoid((0.5, 0, 0), (0.3, 0.3, 0.3)), box((0, 0, 0), (0.1, 1, 1), pitch=20)
    point = ((0.15, 0.1),)
    of_ball, of_wall = (seen([part], points=point).normals for part in (ball, wall))
    of_wall_behind = seen([wall], 180, points=point).normals
    for body in ([ball, wall], [wall, ball]):
        torch.testing.assert_close(seen(body, points=point).normals, of_ball)
        torch.testing.assert_close(seen(body, 180, points=point).normals, of_wall_behind)
    assert not torch.allclose(of_ball, of_wall)


def test_a_symmetric_body_is_mirrored_from_the_other_side():
    body = [box((0, 0, 0), (0.8, 0.3, 0.2)), ellipsoid((0.5, 0, 0.3), (0.2, 0.15, 0.3))]
    for azimuth in (40, 90):
        assert torch.equal(silhouette(body, azimuth, 40), silhouette(body, -azimuth, 40).flip(1))
    flat = [box((0, 0, 0), (0.8, 0.3, 0.2)), ellipsoid((0, 0.6, 0), (0.3, 0.2, 0.2))]
    for azimuth in (0, 70):
        torch.testing.assert_close(silhouette(flat, azimuth, 0), silhouette(flat, azimuth + 180, 0).flip(1))
    assert not torch.equal(silhouette(flat, 0, 0), silhouette(flat, 0, 0).flip(1))


def test_right_and_up_on_the_screen():
    left_and_high = [ellipsoid((0, 0.5, 0.5), (0.2, 0.2, 0.2))]
    rows, columns = silhouette(left_and_high, 0, 0).nonzero().float().mean(0)
    assert rows < 19.5 < columns  # a body that comes towards us has its left on our right


def test_lambert_shading():
    wall = box((0, 0, 0), (0.2, 1, 1))
    lights = [Light(60, 0, 0.8, 0.1), Light(180, 0, 0.8, 0.1), Light(0, 0, 2.0, 0.1)]
    middle = render([wall], torch.tensor([[0, 0]]), lights, pixels=8, scale=3.0, albedo=0.5)[0, :, 4, 4]
    assert middle.tolist() == [round(255 * 0.5 * (0.1 + 0.8 / 2)), round(255 * 0.5 * 0.1), 255]


def test_fitted_bodies_touch_the_sphere():
    body = fit_body([box((3, 1, 2), (2, 1, 0.5), taper=0.5), limb((0, 0, 0), (1, 1, 4), 0.2)], 0.9)
    points = rendering.outline(body)
    assert points.norm(dim=1).max().item() == pytest.approx(0.9)
    torch.testing.assert_close(points.amin(0), -points.amax(0))


# The data set


def test_rendered_in_parts_as_at_once(monkeypatch):
    whole = render_instances((0,), (0, 140), (30, 70))
    monkeypatch.setattr(rendering, "RAYS_AT_ONCE", 1)
    assert torch.equal(render_instances((0,), (0, 140), (30, 70)), whole)
    parts = [render_instances((0,), (azimuth,), (elevation,)) for elevation in (30, 70) for azimuth in (0, 140)]
    assert torch.equal(torch.cat(parts), whole)


def test_every_instance_is_in_the_picture_and_differs():
    images = render_instances(tuple(range(10)), (20,), (30,)).view(10, len(LIGHTS), 5, IMAGE_SIZE, IMAGE_SIZE)
    empty = round(255 * BACKGROUND)
    drawn = images != empty
    assert not drawn[..., :4, :].any()
    assert not drawn[..., -4:, :].any()
    assert not drawn[..., :4].any()
    assert not drawn[..., -4:].any()
    assert drawn.any(1).sum((-1, -2)).min() > 60
    assert (images.amax((0, 2, 3, 4)) > empty).sum() >= 5  # brighter than the background under most lights
    assert (images.amin((0, 2, 3, 4)) < empty).all()
    assert len({image.numpy().tobytes() for image in images[:, 0].flatten(0, 1)}) == 50


@pytest.mark.parametrize("category", CATEGORIES)
def test_lights_change_the_shading_but_not_the_outline(category):
    body, albedo = instance_body(category, 3)
    lit, unlit = (
        render(body, torch.tensor([[40, 45]]), LIGHTS, pixels=40, scale=RADIUS, albedo=albedo, background=ground)[0]
        for ground in (0.0, 1.0)
    )
    covered = 255 - (unlit.int() - lit.int())  # what the background does not reach
    assert (covered - covered[:1]).abs().max() <= 1
    assert len({image.numpy().tobytes() for image in lit}) == len(LIGHTS)


def test_sizes_and_names(monkeypatch):
    asked = []

    def nothing(instances, azimuths, elevations):
        asked.append((instances, azimuths, elevations))
        count = len(instances) * len(azimuths) * len(elevations) * len(LIGHTS) * len(CATEGORIES)
        return torch.zeros(1, 1, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.uint8).expand(count, -1, -1, -1)

    monkeypatch.setattr("torchcaps.data.synthetic.viewpoints.render_instances", nothing)
    counts = {}
    for protocol, splits in (("instance", 2), ("azimuth", 3), ("elevation", 3)):
        for split in ("train", "test", "familiar")[:splits]:
            data = Viewpoints(protocol=protocol).load(split)
            counts[protocol, split] = len(data)
            assert data.class_names == CATEGORIES
            assert data.labels.bincount().tolist() == [len(data) // 5] * 5
            assert asked[-1][0] == INSTANCES["train" if split == "train" else "test"]
    assert counts == {
        ("instance", "train"): 24300,
        ("instance", "test"): 24300,
        ("azimuth", "train"): 8100,
        ("azimuth", "test"): 16200,
        ("azimuth", "familiar"): 8100,
        ("elevation", "train"): 8100,
        ("elevation", "test"): 16200,
        ("elevation", "familiar"): 8100,
    }
    assert set(asked[0][0]).isdisjoint(asked[1][0])
    assert set(asked[2][1]) == set(asked[4][1]) == set(FAMILIAR_AZIMUTHS)
    assert set(asked[3][1]) == set(AZIMUTHS) - set(FAMILIAR_AZIMUTHS)
    assert asked[5][2] == asked[7][2] == (30, 35, 40)
    assert asked[6][2] == ELEVATIONS[len(FAMILIAR_ELEVATIONS) :]


def test_info_says_how_each_image_was_made():
    info = Viewpoints().load_info("test")
    assert info.shape == (24300, 4)
    assert len(info[::5].unique(dim=0)) == 24300 // 5
    for column, values in enumerate([INSTANCES["test"], range(9), range(0, 36, 2), range(6)]):
        assert info[:, column].unique().tolist() == list(values)
    assert set(Viewpoints().load_info("train")[:, 0].tolist()).isdisjoint(info[:, 0].tolist())
    for index in (0, 4321, 24299):
        instance, elevation, azimuth, light = info[index].tolist()
        few = render_instances((instance,), (10 * azimuth,), (ELEVATIONS[elevation],))
        body, albedo = instance_body(CATEGORIES[index % 5], instance)
        view = torch.tensor([[10 * azimuth, ELEVATIONS[elevation]]])
        image = render(body, view, LIGHTS, pixels=40, scale=RADIUS, albedo=albedo, background=BACKGROUND)[0, light]
        assert torch.equal(few.view(len(LIGHTS), 5, 40, 40)[light, index % 5], image)


def test_a_split_is_the_same_twice_and_the_part_of_the_whole_that_info_says(monkeypatch):
    monkeypatch.setattr("torchcaps.data.synthetic.viewpoints.INSTANCES", {"train": (4,), "test": (0,)})
    monkeypatch.setattr("torchcaps.data.synthetic.viewpoints.AZIMUTHS", (0, 160, 300))
    monkeypatch.setattr("torchcaps.data.synthetic.viewpoints.ELEVATIONS", (30, 35, 40, 45))
    info, whole = Viewpoints().load_info("test"), Viewpoints().load("test")
    assert torch.equal(whole.images, Viewpoints().load("test").images)
    known = {
        "azimuth": torch.isin(10 * info[:, 2], torch.tensor(FAMILIAR_AZIMUTHS)),
        "elevation": torch.isin(info[:, 1], torch.tensor(FAMILIAR_ELEVATIONS)),
    }
    for protocol, mask in known.items():
        assert 0 < mask.sum() < len(mask)
        for split, chosen in (("familiar", mask), ("test", ~mask)):
            data = Viewpoints(protocol=protocol).load(split)
            assert torch.equal(data.images, whole.images[chosen])
            assert torch.equal(data.labels, whole.labels[chosen])


def test_unknown_protocol_and_split():
    with pytest.raises(DataError, match="viewpoints has the protocols instance, azimuth, elevation, not 'lighting'"):
        Viewpoints(protocol="lighting").load("train")
    with pytest.raises(DataError, match="viewpoints has the splits train, test for the protocol instance, not 'valid'"):
        Viewpoints().load("valid")
    with pytest.raises(DataError, match="familiar is a split of the protocols azimuth and elevation"):
        Viewpoints().load_info("familiar")
