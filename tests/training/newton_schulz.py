"""Matrices with gradients, and the definition of their orthogonalization."""

import torch
from torch import nn

SHAPES = [(6, 6), (6, 10), (10, 6), (6, 6), (1, 5), (6, 10)]


def matrices_of(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def give_gradients(matrices, seed):
    generator = torch.Generator().manual_seed(seed)
    for matrix in matrices:
        matrix.grad = torch.randn(matrix.shape, generator=generator)


def iterated(matrix, products=torch.float32):
    """One matrix, orthogonalized by the quintic iteration of Jordan et al., 2024."""
    x = (matrix.T if matrix.shape[0] > matrix.shape[1] else matrix).to(products)
    x = x / x.norm()
    for _ in range(5):
        gram = x @ x.T
        polynomial = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, polynomial, x, beta=3.4445)  # rounded as rarely as in Muon
    return (x.T if matrix.shape[0] > matrix.shape[1] else x).float()
