from nmt_cli.display import Screen, aligned


def test_a_note_cannot_command_the_terminal(capsys):
    Screen().note("sample \x1b[31m\x07\x9b\x00 é\nnext")
    assert capsys.readouterr().err == "sample \ufffd[31m\ufffd\ufffd\ufffd é\nnext\n"


def test_names_are_shown_as_they_are(capsys):
    Screen().note(":cat: [de] [bold]")
    assert capsys.readouterr().err == ":cat: [de] [bold]\n"
    assert aligned([["a\x1b[2J", "1"]]) == ["a\ufffd[2J  1"]


def test_a_table_keeps_to_the_terminal_by_its_last_column():
    rows = [["name", "what"], ["a", "some words and more of them"], ["b", ""]]
    assert aligned(rows, (0, 1), 20) == [
        "name  what",
        "a     some words and",
        "      more of them",
        "b",
    ]
    assert aligned(rows, (0, 1)) == ["name  what", "a     some words and more of them", "b"]
    assert aligned(rows, (0, 1), 12) == aligned(rows, (0, 1)), "too narrow to wrap anything"
