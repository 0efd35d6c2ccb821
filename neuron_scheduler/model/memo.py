"""
`functools.lru_cache` with types: the type check knows the parameters of the cached function.

The standard library declares that a cached function takes any hashable arguments.
"""

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Generic, ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _T = TypeVar("_T")

    class Memoised(Generic[_P, _T]):
        """A function whose latest results are kept."""

        __wrapped__: Callable[_P, _T]

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...

    def memoise(maxsize: int) -> Callable[[Callable[_P, _T]], Memoised[_P, _T]]:
        """Keep up to `maxsize` results of a pure function, by its arguments."""

else:
    memoise = functools.lru_cache
