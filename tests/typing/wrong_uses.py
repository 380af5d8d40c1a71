"""Mistakes that a type checker finds: one on every line that says so, none on any other."""

import torch
from torchcaps import Capsules, CapsuleLinear, CapsuleLoss, ModelOutput, PrimaryCapsules2d, create_model
from torchcaps import nonsense  # wrong: no such name
from torchcaps import routed_linear  # wrong: it lives in torchcaps.ops
from torchcaps.layers import CapsuleLiner  # wrong: no such layer
from torchcaps.losses import margin_loss
from torchcaps.models import ModelConfig
from torchcaps.routing import DynamicRouting

import torchcaps

torchcaps.nonsense  # wrong: no such name
torchcaps.layers.nonsense  # wrong: no such name
torchcaps.rooting  # wrong: no such module

images, labels = torch.rand(2, 1, 9, 9), torch.tensor([0, 1])
primary = PrimaryCapsules2d(1, 2, 4, 3)
linear = CapsuleLinear(98, 4, 3, 8)

capsules = primary(images)
capsules.poses  # wrong: pose
primary(images, "mask")  # wrong: a mask is a tensor
primary(capsules)  # wrong: features are a tensor
linear(images)  # wrong: it takes Capsules
linear(capsules, capsules)  # wrong: one set of capsules
CapsuleLinear("98", 4, 3, 8)  # wrong: a number
CapsuleLinear(98, 4, 3, 8, routing=3)  # wrong: a name, a mapping or a Routing
CapsuleLinear(98, 4, 3, 8, dtype="float32")  # wrong: a torch.dtype
PrimaryCapsules2d(1, 2, 4, 3, devise="cpu")  # wrong: device

routed = DynamicRouting(3)(torch.rand(2, 6, 3, 4))
routed.couplings  # wrong: coupling
routed.coupling.sum()  # wrong: None, where none was asked for
DynamicRouting("3")  # wrong: a number
DynamicRouting(3)(torch.rand(2, 6, 3, 4), trace="yes")  # wrong: a truth value
DynamicRouting(3, leeky=True)  # wrong: leaky
torchcaps.ops.dynamic_routing(torch.rand(2, 6, 3, 4), squash=3)  # wrong: a name
torchcaps.ops.em_routing(torch.rand(2, 6, 3, 4), torch.rand(2, 6), 0.0, 0.0, floor=1e-4)  # wrong: variance_floor

model = create_model("capsnet-small", (1, 28, 28), 3)
create_model(3)  # wrong: a name
create_model("capsnet-small", 28)  # wrong: a shape
create_model("capsnet-small", device=1.5)  # wrong: a device
output = model(images, labels)
output.score  # wrong: scores
output.capsules.pose  # wrong: None for a CNN
model(images, 3)  # wrong: a tensor
model("images")  # wrong: a tensor
model.config.name  # wrong: None for a model that was not made by a registered function
ModelConfig("capsnet-small", (1, 28, 28), "3")  # wrong: a number

loss = CapsuleLoss()
loss(output, 3)  # wrong: a tensor
loss([output], labels)  # wrong: an output, Capsules or a tensor
loss(output, labels).totals  # wrong: total
margin_loss(output, labels)  # wrong: lengths are a tensor
ModelOutput(capsules)  # wrong: scores are a tensor
Capsules(images)  # wrong: an activation belongs to it
