"""Stand-ins can be used as what they stand for while modules are imported."""

from tercet.configs.stand_ins import StandIn, stand_in

torch = stand_in("torch")


def test_classes_that_are_derived_from_stand_ins_are_built():
    class Layer(torch.nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.width = width

    assert Layer(3).width == 3
    assert isinstance(Layer(3), torch.nn.Module)


def test_decorators_leave_what_they_decorate():
    def decorated(value: torch.Tensor | None = None):  # pyright: ignore[reportInvalidTypeForm]
        return value

    assert torch.compile(decorated) is decorated
    assert torch.no_grad()(decorated) is decorated


def test_what_modules_compute_with_stand_ins_is_a_stand_in():
    table = -((2 * torch.arange(3, dtype=torch.long)[None] + 1) ** 2)
    assert isinstance(table, StandIn)
    assert [*table] == []
    assert torch.long is torch.long
