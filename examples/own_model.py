"""A capsule network of one's own, in one file: trained, measured, explained and explored like those of torchcaps.

    python examples/own_model.py train --model.name pooled --epochs 5 --evaluate
    python examples/own_model.py explain runs/quickstart-1
    python examples/own_model.py explore runs/quickstart-1

The command line of this file knows the model, because running the file registers it. In Python it is the same:
``import own_model``, then ``torchcaps.fit("mnist-mini", "pooled")``.
"""

from torch import nn

from torchcaps import CapsuleLinear, PrimaryCapsules2d, register_model
from torchcaps.cli import main
from torchcaps.models import Model, ModelOutput


@register_model("pooled")
class PooledCapsNet(Model):
    """A stem with max-pooling, primary capsules on a grid, class capsules.

    Args:
        image_shape: channels, height, width.
        classes: number of classes.
        width: channels of the stem.
        routing: a name, or a mapping with a name and options.
    """

    def __init__(self, image_shape, classes, *, width=24, routing="dynamic"):
        super().__init__()
        channels, height, across = image_shape[0], image_shape[1] // 2, image_shape[2] // 2
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        self.primary = PrimaryCapsules2d(width, 4, 8, kernel_size=3, stride=2)
        children = ((height - 3) // 2 + 1) * ((across - 3) // 2 + 1) * 4
        self.classes = CapsuleLinear(children, 8, classes, 12, routing)

    def forward(self, images, target=None):
        """Classify images; the target is accepted, as by every model, and not needed."""
        capsules = self.classes(self.primary_capsules(images))
        return ModelOutput(capsules.activation, capsules)

    # All that explain and explore ask of a model: its first capsules, and the layers that are routed.

    def primary_capsules(self, images):
        """The first capsules, on a grid."""
        return self.primary(self.stem(images))

    def capsule_layers(self):
        """The routed layers in their order, the class capsules last."""
        return [("classes", self.classes)]


if __name__ == "__main__":
    main()
