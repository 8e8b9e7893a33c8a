import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))
jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Tests compile into a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLONOMIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
