"""The fields of a document, each with its path, so that an error says where it is. Does not depend on kinds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

_LONGEST_NAME: Final = 253


@attrs.frozen
class Fields:
    """
    An object of a document.

    Attributes:
        source: the file.
        value: its fields.
        path: where it is in its document; empty for the document itself.
        owner: `Kind name` of the document; empty to take it from `value`.
    """

    source: str
    value: Mapping[str, Any]
    path: str = ""
    owner: str = ""

    @property
    def name(self) -> str:
        """The object's name: `metadata.name`, or the beginning that the API server completes."""
        metadata = self.value.get("metadata")
        if isinstance(metadata, Mapping):
            for key in ("name", "generateName"):
                name = metadata.get(key)
                if isinstance(name, str) and name:
                    return name[:_LONGEST_NAME].rstrip("-")
        return "unnamed"

    @property
    def namespace(self) -> str:
        """The object's namespace; empty if it names none."""
        metadata = self.value.get("metadata")
        said = metadata.get("namespace") if isinstance(metadata, Mapping) else None
        return said if isinstance(said, str) else ""

    @property
    def plain_name(self) -> str:
        """The field `name` of a part of an object."""
        name = self.value.get("name")
        return name if isinstance(name, str) else ""

    @property
    def title(self) -> str:
        """Kind and name."""
        return self.owner or f"{self.value.get('kind', 'object')} {self.name}"

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations."""
        metadata = self.value.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        return {str(key): str(value) for key, value in annotations.items()} if isinstance(annotations, Mapping) else {}

    def error(self, problem: str) -> ConfigurationError:
        """Return an error about this object."""
        return ConfigurationError(printable(f"{self.source}: {self.title}: {problem}"))

    def at(self, key: str) -> "Fields":
        """
        Return the object in a field.

        Raises:
            ConfigurationError: there is none.
        """
        value = self.value.get(key)
        if not isinstance(value, Mapping):
            raise self.error(f"{self._path(key)} {'is missing' if value is None else 'is no object'}")
        return Fields(self.source, value, self._path(key), self.title)

    def part(self, value: Mapping[str, Any], path: str) -> "Fields":
        """Return an item of a list in this object."""
        return Fields(self.source, value, path, self.title)

    def objects(self, key: str) -> Sequence[dict[str, Any]]:
        """
        Return the objects of a list, none if the field is absent.

        Raises:
            ConfigurationError: it is no list of objects.
        """
        items = self.value.get(key)
        if items is None:
            return ()
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise self.error(f"{self._path(key)} is no list of objects")
        return items

    def count(self, key: str, default: int) -> int:
        """
        Return a number from 0 up.

        Raises:
            ConfigurationError: it is none.
        """
        value = self.value.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(f"{self._path(key)} is {value!r}; it must be a whole number from 0 up")
        return value

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
