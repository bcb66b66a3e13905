from gunreal_inverse import InverseDynamics

from gunreal.testing import check_task


def test_keeps_the_contract():
    check_task(InverseDynamics)
