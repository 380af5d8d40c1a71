"""`torchcaps explain`: a page on a trained run, a module per section."""
