import pytest

from lawful.data.text import read_labeled_texts, read_texts


@pytest.fixture
def write(tmp_path):
    def write(content, name="texts.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return str(path)

    return write


def test_rows_without_a_text_or_a_class_are_left_out_with_a_note(write):
    found = read_labeled_texts(write("text,kind\na cat,x\n,x\na dog,\na cow,y\nan owl,y\na bee,x\n"))
    assert found.texts == ("a cat", "a cow", "an owl", "a bee")
    assert found.notes == ("left out 2 of 6 rows of texts.csv: 1 without a text, 1 without a class",)


def test_words_that_mean_missing_in_a_table_of_numbers_are_texts(write):
    found = read_labeled_texts(write("word,language\nna,pl\nnull,en\nnone,en\nnan,NA\nnie,pl\n?,NA\n"))
    assert found.texts == ("na", "null", "none", "nan", "nie", "?")
    assert found.classes == ("NA", "en", "pl")


def test_a_first_row_with_a_class_that_occurs_below_is_no_header(write, tmp_path):
    path = write("pos,good film\nneg,bad film\npos,fine film\nneg,sad film\n")
    found = read_labeled_texts(path)
    assert found.texts[0] == "good film"
    assert (found.columns, found.has_header) == (("x2", "x1"), False)
    assert found.notes == ("texts.csv has no header: its columns are named x1, x2",)
    new = read_texts(path, classes=found.classes, text="x2", target="x1", has_header=False)
    assert (len(new.texts), new.labels) == (4, (1, 0, 1, 0))
    only = write("good film\nbad film\n", "new.csv")
    assert read_texts(only, classes=found.classes, text="x2", target="x1", has_header=False).texts[0] == "good film"


def test_a_column_with_a_usual_name_has_the_classes(write):
    rows = ("1,a,one word,Monday", "2,b,two words,Tuesday", "3,a,three words,Monday", "4,b,four words,Friday")
    found = read_labeled_texts(write("\n".join(("id,Label,text,day", *rows))))
    assert found.columns == ("text", "Label")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "texts.csv is empty"),
        ("text\na\nb\n", "needs a text column and a class column, it has text"),
        ("text,kind\na,x\nb,x\n", "at least 2 classes, got 1: 'x'"),
        ("text,kind,id\naa,x,1\nbb,y,2\ncc,x,3\ndd,y,4\n", "column 'id' of .* 4 classes in 4 texts: choose .* kind"),
        ("text,kind\na, b,x\nc,y\n", "line 2 of texts.csv has 3 fields, expected 2"),
    ],
)
def test_tables_that_do_not_fit_are_refused(write, content, said):
    with pytest.raises(ValueError, match=said):
        read_labeled_texts(write(content))


def test_folders_need_subfolders_and_empty_files_are_noted(write, tmp_path):
    write("a", "flat/1.txt")
    with pytest.raises(ValueError, match="flat has no subfolders, expected one folder of text files per class"):
        read_labeled_texts(str(tmp_path / "flat"))
    for name, content in (("a/1", "one"), ("a/2", " \n"), ("a/3", ""), ("b/1", "two"), ("b/2", "three")):
        write(content, f"deep/{name}.txt")
    found = read_labeled_texts(str(tmp_path / "deep"))
    assert found.texts == ("one", "two", "three")
    assert found.notes == ("left out 2 of 5 files of deep: empty",)
    assert read_texts(tmp_path / "deep", classes=("a", "b")).texts == ("one", " \n", "", "two", "three")
