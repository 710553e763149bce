from nmt_cli.display import Screen


def test_a_note_cannot_command_the_terminal(capsys):
    Screen().note("sample \x1b[31m\x07\x9b\x00 é\nnext")
    assert capsys.readouterr().err == "sample \ufffd[31m\ufffd\ufffd\ufffd é\nnext\n"
