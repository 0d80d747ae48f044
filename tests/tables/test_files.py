"""Files of tables: the same rows by either reader, and refusals without a cell in them."""

import bz2
import gzip
import random
import sys
from itertools import count

import numpy as np
import pytest

from lastiterate.errors import InvalidParameter
from lastiterate.tables import cells
from lastiterate.tables import encoder as encoding
from lastiterate.tables import files as csv_file
from lastiterate.tables.encoder import Encoder, encode_file
from lastiterate.tables.files import open_table, readable

SCHEMA = {"age": {"range": [0, 100], "missing": 50}, "job": {"values": ["clerk", "a, b", "x\ny"]}}
TOKEN = "Tr0ub4dor"


@pytest.fixture(params=["pyarrow", "python"])
def reader(request, monkeypatch):
    """Either way to read."""
    if request.param == "pyarrow":
        pytest.importorskip("pyarrow")
    else:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    return request.param


def rows_in(path, schema=SCHEMA, **options):
    table = open_table(path, **options)
    return encode_file(table, Encoder.of(schema, table.names), {}).rows


def ages(rows):
    return (50 * (rows[:, 0] + 1)).round(6).tolist()


PIECES = ['"', '""', ' "', '" ', '"z', "\n", "\r", ",", " ", "5", "1_0", "nan(1)", "NAN", "\0"]
PIECES += ['"a\nb"', '"a,b"', 'q"a"', "\t", "\ufeff", "\udcff", "\x85", "\n7,u,v\n"]


def _meanings(blocks):
    rows = []
    try:
        for block in blocks:
            columns = [cells.array_of(column) for column in block.values()]
            numbers = np.nan_to_num(cells.any_numbers_of(columns[0]), nan=-1.0)
            rows += zip(numbers, *columns[1:], strict=True)
    except (InvalidParameter, cells.BadCells):
        return "refused"
    return rows


class TestGrammar:
    @pytest.mark.parametrize("odd", ["33,a,ok", "1_0,a,ok", "nan(1),a,ok", "NAN,a,ok"])
    @pytest.mark.parametrize("cell", [' "oops', '\t"oops', 'x"oops', ' "'])
    def test_no_cell_decides_how_other_rows_are_cut(self, reader, tmp_path, odd, cell):
        lines = ["age,job,notes"] + ["33,a,ok"] * 1_000
        lines[300], lines[901] = f"33,a,{cell}", odd
        path = tmp_path / "t.csv"
        path.write_text("\n".join(lines))
        schema = {"age": {"range": [0, 100], "missing": 50}, "job": {"values": ["a", "b"]}}
        if odd == "nan(1),a,ok":
            with pytest.raises(InvalidParameter, match="row 901"):
                rows_in(path, schema | {"notes": "drop"})
        else:
            assert len(rows_in(path, schema | {"notes": "drop"})) == 1_000

    def test_is_the_same_of_both_readers(self, tmp_path, monkeypatch):
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(csv_file, "check_bytes", lambda *_: None)  # past the beginning
        rng = random.Random(0)
        path = tmp_path / "t.csv"
        found = []
        for _ in range(250):
            monkeypatch.setattr(csv_file, "_CSV_BLOCK_BYTES", rng.choice([1 << 22, 24]))
            rows = [[str(k), "u", "v"] for k in range(6)]
            for _ in range(rng.randrange(1, 3)):
                rows[rng.randrange(6)][rng.randrange(3)] = rng.choice(PIECES)
            text = "\n".join(map(",".join, [["a", "b", "c"], *rows]))
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
            kinds = dict(rng.choice([{"a": "number"}, {"a": "number", "c": "text"}]))
            table = csv_file.CsvFile(path)
            try:
                assert table.names
            except InvalidParameter:
                continue
            fast, slow = _meanings(table.blocks(kinds)), _meanings(table._by_csv_reader(3, kinds))
            assert fast == slow, text
            found.append(slow)
        assert found.count("refused") < len(found) - 50

    def test_refuses_names_in_quotes_after_a_blank(self, reader, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text('"age", "job"\n10, "clerk"\n')
        with pytest.raises(InvalidParameter, match="without blanks before quotes"):
            rows_in(path)


class TestCsv:
    @pytest.mark.parametrize(
        "text, age, job",
        [
            ("age,job\n10,clerk\n20,spy\n", [10, 20], [0, -1]),
            ("age,job\r\n10,clerk\r\n\r\n20,clerk\r\n", [10, 20], [0, 0]),
            ("\ufeffage,job\n10,clerk\n20,clerk\n", [10, 20], [0, 0]),
            ("age, job\n10, clerk\n 20,clerk \n", [10, 20], [0, 0]),
            ('age,job\n10,"a, b"\n20,"x\ny"\n', [10, 20], [1, 2]),
            ('age,job\n"10","a, b"\n20, "clerk"\n', [10, 20], [1, -1]),
            ("age,job\n,clerk\nNA,clerk\n ?,clerk\n3e1,\n", [50, 50, 50, 30], [0, 0, 0, -1]),
            ("job,age\nclerk,10\n\ufffdspy,20\n", [10, 20], [0, -1]),
            ("age,job\n1_0,clerk\n20,clerk\n", [10, 20], [0, 0]),
        ],
    )
    def test_says_the_same_to_both_readers(self, reader, tmp_path, text, age, job):
        path = tmp_path / "t.csv"
        path.write_bytes(text.encode())
        schema = dict(sorted(SCHEMA.items()))
        table = open_table(path)
        found = encode_file(table, Encoder.of(schema, sorted(table.names)), {}).rows
        assert ages(found) == age
        assert [int(row.argmax()) if row.any() else -1 for row in found[:, 1:]] == job

    @pytest.mark.parametrize("delimiter, name", [(";", "t.csv"), ("\t", "t.csv"), ("\t", "t.tsv")])
    def test_other_delimiters(self, reader, tmp_path, delimiter, name):
        path = tmp_path / name
        path.write_text(f"age{delimiter}job\n10{delimiter}clerk\n20{delimiter}spy\n")
        options = {} if name == "t.tsv" else {"delimiter": delimiter}
        assert ages(rows_in(path, **options)) == [10, 20]

    @pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
    def test_compressed(self, tmp_path, ending):
        pa = pytest.importorskip("pyarrow")
        text = b"age,job\n10,clerk\n20,spy\n"
        packed = {
            "gz": gzip.compress,
            "bz2": bz2.compress,
            "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
        }[ending](text)
        path = tmp_path / f"t.csv.{ending}"
        path.write_bytes(packed)
        assert ages(rows_in(path)) == [10, 20]
        path.write_bytes(packed[:-9])
        with pytest.raises(InvalidParameter):
            rows_in(path)

    def test_a_name_that_is_the_only_answer_is_a_name(self, reader, tmp_path):
        """As where several answers may be ticked."""
        path = tmp_path / "t.csv"
        path.write_text("age,clerk\n1,clerk\n2,\n")
        schema = {"age": SCHEMA["age"], "clerk": {"values": ["clerk"]}}
        assert rows_in(path, schema)[:, 1].tolist() == [1, 0]

    def test_many_blocks(self, reader, tmp_path, monkeypatch):
        """More than either reader takes at once; the rows keep their order."""
        monkeypatch.setattr(csv_file, "_CSV_BLOCK_BYTES", 1 << 14)
        numbers = np.arange(8_000) % 101
        path = tmp_path / "t.csv"
        lines = [f"{number},clerk,{'x' * 20}" for number in numbers]
        path.write_text("\n".join(["age,job,more", *lines]) + "\n")
        found = rows_in(path, SCHEMA | {"more": "drop"})
        assert np.array_equal(np.rint(50 * (found[:, 0] + 1)), numbers)
        assert (found[:, 1] == 1.0).all()


class TestRefusals:
    @pytest.mark.parametrize(
        "content, said",
        [
            (f"age,job\n10,clerk\n{TOKEN},clerk\n", "column 'age' .* in row 2, the header"),
            ("age,job\n10,clerk\n1e999,clerk\n", "column 'age' .* in row 2"),
            (f"age,job\n10,clerk\n20,{TOKEN},3\n", "3 cells in row 2"),
            (f"age;job\n10;{TOKEN}\n", "found semicolons"),
            (f"age\tjob\n10\t{TOKEN}\n", "found tabs"),
            (f"{TOKEN},98765,yes\n10,20,no\n", "first line must be the names .* a number"),
            (f"{TOKEN},clerk\nBob,clerk\nEve,spy\n", "a value that occurs below"),
            (f"{TOKEN},{TOKEN}\n1,2\n", "different names"),
            ("age,\n1,2\n", "first line must be the names"),
            ("age,job\n", "columns and rows"),
            ("", "columns and rows"),
            (f"age,job\n10,{TOKEN}\n".encode("utf-16"), "UTF-16"),
            (f"age,job\n10,{TOKEN}\n".encode("utf-16-le"), "as in UTF-16"),
            (f"age,job\n1,clerk\n2,{TOKEN}\u00e9\n".encode("latin-1"), "no UTF-8 in row 2"),
            (f"ag\u00e9,job\n1,{TOKEN}\n".encode("latin-1"), "WINDOWS-1252 .* in the first line"),
            ("age,job\n10,clerk\n\"98765,5\",clerk\n", "with a decimal point, 1.5 and not 1,5"),
            (b"PK\x03\x04" + TOKEN.encode(), "a spreadsheet"),
        ],
        ids=count(),
    )  # fmt: skip
    def test_csv(self, reader, tmp_path, content, said):
        path = tmp_path / "t.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InvalidParameter, match=said) as refused:
            rows_in(path)
        assert TOKEN not in str(refused.value)
        assert "98765" not in str(refused.value)
        assert refused.value.__cause__ is None

    def test_rows_are_counted_over_blocks(self, reader, tmp_path, monkeypatch):
        monkeypatch.setattr(csv_file, "_CSV_BLOCK_BYTES", 1 << 14)
        path = tmp_path / "t.csv"
        lines = ["1,clerk"] * 9_000
        lines[8_234] = f"{TOKEN},clerk"
        path.write_text("\n".join(["age,job", *lines]) + "\n")
        with pytest.raises(InvalidParameter, match="in row 8,235, the header not counted"):
            rows_in(path)

    def test_empty_cells_without_a_word_for_them(self, reader, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("age,job\n" + "1,clerk\n,clerk\n" * 7)
        with pytest.raises(InvalidParameter, match="an empty cell in rows 2, 4, 6, 8, 10 and oth"):
            rows_in(path, SCHEMA | {"age": {"range": [0, 9]}})

    def test_all_columns_with_empty_cells_are_named_with_the_middle_of_their_range(
        self, reader, tmp_path
    ):
        path = tmp_path / "t.csv"
        path.write_text("bmi,pressure\n20,1\n,1\n20,\n")
        said = (
            r"'bmi' .*\"missing\": 32.5.*'pressure' .* 100.*in 'bmi' .* row 2.*'pressure' .* row 3"
        )
        with pytest.raises(InvalidParameter, match=said):
            rows_in(path, {"bmi": {"range": [15, 50]}, "pressure": {"range": [0, 200]}})

    def test_sheets(self, tmp_path):
        (tmp_path / "t.xlsx").write_bytes(b"PK")
        with pytest.raises(InvalidParameter, match="save the sheet as CSV UTF-8"):
            rows_in(tmp_path / "t.xlsx")

    @pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
    def test_what_is_no_delimiter(self, tmp_path, delimiter):
        path = tmp_path / "t.csv"
        path.write_text("age,job\n1,clerk\n")
        with pytest.raises(InvalidParameter, match="delimiter must be one character"):
            rows_in(path, delimiter=delimiter)

    @pytest.mark.parametrize("name", ["t.parquet", "t.npz", "t.csv.gz", "t.csv"])
    def test_other_bytes(self, tmp_path, name):
        if name == "t.parquet":
            pytest.importorskip("pyarrow")
        path = tmp_path / name
        path.write_bytes(b"\x01" + TOKEN.encode() * 9)
        with pytest.raises(InvalidParameter) as refused:
            rows_in(path)
        assert TOKEN not in str(refused.value)
        path.unlink()
        with pytest.raises(FileNotFoundError):
            rows_in(path)


class TestBinary:
    def test_parquet(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        path = tmp_path / "t.parquet"
        columns = {
            "age": pa.array([10, None, 20]),
            "job": pa.array(["clerk", "spy", None]).dictionary_encode(),
            "well": pa.array([True, False, True]),
            "rank": pa.array([1.0, 2.0, 3.0]),
        }
        parquet.write_table(pa.table(columns), path)
        schema = SCHEMA | {"well": {"values": ["true", "false"]}, "rank": {"values": [1, 3]}}
        found = rows_in(path, schema)
        assert ages(found) == [10, 50, 20]
        assert found[:, 1].tolist() == [1, 0, 0]
        assert found[:, 4:6].tolist() == [[1, 0], [0, 1], [1, 0]]
        assert found[:, 6:].tolist() == [[1, 0], [0, 0], [0, 1]]

    def test_dates_and_lists_are_no_numbers(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        path = tmp_path / "t.parquet"
        for column in (pa.array([0, 1], pa.timestamp("s")), pa.array([[1.0], [2.0]])):
            parquet.write_table(pa.table({"age": column}), path)
            with pytest.raises(InvalidParameter, match="column 'age' must be a finite number"):
                rows_in(path, {"age": SCHEMA["age"]})

    def test_arrays(self, tmp_path):
        path = tmp_path / "t.npz"
        np.savez(path, x=np.array([[10, 20], [30, np.nan]]), job=np.array(["clerk", "spy"]))
        schema = {"job": SCHEMA["job"], "*": {"range": [0, 100], "missing": 50}}
        found = rows_in(path, schema)
        assert np.allclose(50 * (found[:, :2] + 1), [[10, 20], [30, 50]])
        np.savez(path, x=np.zeros(3), job=np.array(["clerk", "spy"]))
        with pytest.raises(InvalidParameter, match="of the same length"):
            rows_in(path, schema)


class TestMemory:
    def test_want_of_it_is_not_a_damaged_file(self, tmp_path):
        with (
            pytest.raises(InvalidParameter, match=r"fit into memory.*--mapped FOLDER"),
            readable(tmp_path / "rows.parquet"),
        ):
            raise MemoryError

    def test_a_table_that_is_too_large_is_refused(self, reader, tmp_path, monkeypatch):
        path, rows = tmp_path / "t.csv", tmp_path / "rows"
        path.write_text("age,job\n" + "1,clerk\n" * 1_000)
        monkeypatch.setattr(encoding, "available_memory", lambda: 50_000.0)
        with pytest.raises(InvalidParameter, match="--mapped FOLDER keeps the rows in"):
            rows_in(path)
        table = open_table(path)
        mapped = encode_file(table, Encoder.of(SCHEMA, table.names), {}, mapped=rows).rows
        monkeypatch.undo()
        assert isinstance(mapped, np.memmap)
        assert np.array_equal(mapped, rows_in(path))

    def test_nothing_is_left_of_a_mapped_file_that_failed(self, reader, tmp_path):
        path, rows = tmp_path / "t.csv", tmp_path / "rows"
        path.write_text("age,job\n1,clerk\nx,clerk\n")
        table = open_table(path)
        with pytest.raises(InvalidParameter):
            encode_file(table, Encoder.of(SCHEMA, table.names), {}, mapped=rows)
        assert not rows.exists()
