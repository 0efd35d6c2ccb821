"""The reader of Go files finds what gofmt's layout shows, and is not misled by comments and texts."""

from tests.upstream import go_source

FILE = """package p

import (
	"fmt"
	"a module"
)

// A comment with "a text in it".
const Reason = "node(s) had a reason" /* "another text" */

func (pl *Plugin) Filter(ctx context.Context) *fwk.Status {
	klog.FromContext(ctx).V(4).Info("a logged text", "pod", klog.KObj(pod))
	logger.Error(err, "a logged error")
	return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("Insufficient %v // of it", name))
}

func (pl *Plugin) Name() string { return "OneWord" }
"""


def test_code_has_no_comments_and_no_imports() -> None:
    """Texts keep what looks like a comment."""
    code = go_source.code(FILE)
    assert '"a text in it"' not in code
    assert '"another text"' not in code
    assert '"a module"' not in code
    assert "// of it" in code


def test_messages_are_texts_of_several_words_that_are_not_logged() -> None:
    """A log line is nobody's reason."""
    assert go_source.messages(go_source.code(FILE)) == {"node(s) had a reason", "Insufficient %v // of it"}


def test_a_function_ends_at_its_own_bracket() -> None:
    """The body of a method is found by its name, whatever its receiver."""
    (body,) = go_source.functions(go_source.code(FILE), "Filter")
    assert "Sprintf" in body
    assert "OneWord" not in body


def test_a_block_ends_at_its_own_bracket() -> None:
    """Brackets inside it and in texts do not end it."""
    assert go_source.block('Set{ {Name: "}"}, {} } rest', "Set{") == ' {Name: "}"}, {} '
    assert go_source.block("nothing", "Set{") == ""
