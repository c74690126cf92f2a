import numpy as np
import pytest

from lawful.data import parse_dates


def days(dates):
    return dates.values.astype("datetime64[D]").astype(str).tolist()


@pytest.mark.parametrize(
    ("text", "expected", "precision"),
    [
        ("2024-01-31", "2024-01-31T00:00", "day"),
        ("2024/1/31", "2024-01-31T00:00", "day"),
        ("2024-01-31T13:45:10", "2024-01-31T13:45:10", "time"),
        ("2024-01-31 13:45", "2024-01-31T13:45", "time"),
        ("2024-01-31T13:45:10.250Z", "2024-01-31T13:45:10.250", "time"),
        ("2024-01-31 13:45:00+02:00", "2024-01-31T11:45", "time"),
        ("2024-01-31 00:45:00-0130", "2024-01-31T02:15", "time"),
        ("31.01.2024", "2024-01-31T00:00", "day"),
        ("31.1.2024 7:05", "2024-01-31T07:05", "time"),
        ("31/01/2024", "2024-01-31T00:00", "day"),
        ("1/31/2024 1:05 PM", "2024-01-31T13:05", "time"),
        ("1/31/2024 12:05 AM", "2024-01-31T00:05", "time"),
        ("1/31/24", "2024-01-31T00:00", "day"),
        ("1/31/99", "1999-01-31T00:00", "day"),
        ("31-12-2024", "2024-12-31T00:00", "day"),
        ("31-Jan-2024", "2024-01-31T00:00", "day"),
        ("31 January 2024", "2024-01-31T00:00", "day"),
        ("Wed, 31 Jan 2024 10:00:00 GMT", "2024-01-31T10:00", "time"),
        ("January 31st, 2024", "2024-01-31T00:00", "day"),
        ("Jan 31 2024", "2024-01-31T00:00", "day"),
        ("2024-02", "2024-02-01T00:00", "month"),
        ("02/2024", "2024-02-01T00:00", "month"),
        ("Feb 2024", "2024-02-01T00:00", "month"),
        ("Feb-24", "2024-02-01T00:00", "month"),
        ("2024Q2", "2024-04-01T00:00", "month"),
        ("Q2 2024", "2024-04-01T00:00", "month"),
        ("2024-W05", "2024-01-29T00:00", "day"),
    ],
)
def test_a_date_is_parsed(text, expected, precision):
    dates = parse_dates([text, text.upper()])
    assert dates.values.tolist() == [np.datetime64(expected, "us").tolist()] * 2
    assert dates.precision == precision


@pytest.mark.parametrize(
    "column",
    [
        ["red", "blue"],
        ["1", "2"],
        ["2019", "2020"],
        ["00042", "00043"],
        ["12345678", "20240131", "87654321"],
        ["20240131"],
        ["10.2.13", "10.2.14"],
        ["192.168.0.1"],
        ["2024-13-01", "2024-14-01"],
        ["31/31/2024"],
        ["2024-02-30"],
        ["5-1", "2-3"],
        ["may", "june"],
        ["12:30"],
        ["2024-01-31 25:00"],
        ["", None, "NA"],
        [],
        ["2024-01-01"] * 8 + ["x"] * 2,
        ["\u0661/\u0662/2024"],
    ],
    ids=str,
)
def test_other_columns_are_not_dates(column):
    assert parse_dates(column) is None


def test_numbers_of_eight_digits_are_dates_if_all_are():
    assert days(parse_dates(["20240131", "20240201", "20240202"])) == ["2024-01-31", "2024-02-01", "2024-02-02"]


def test_missing_and_a_few_invalid_values_are_nat():
    dates = parse_dates(["2024-01-01", "", None, "n/a"] + ["2024-01-02"] * 20 + ["soon"])
    assert np.flatnonzero(np.isnat(dates.values)).tolist() == [1, 2, 3, 24]
    assert dates.invalid == (24,)


@pytest.mark.parametrize(
    ("column", "order", "ambiguous"),
    [
        (["03/04/2024", "25/04/2024"], "day first", False),
        (["03/04/2024", "04/25/2024"], "month first", False),
        (["01/02/2024", "02/03/2024"], "month first", True),
        (["01.02.2024", "02.03.2024"], "day first", False),
        ([f"01/{month:02}/{year}" for year in (2020, 2021) for month in range(1, 13)], "day first", False),
        ([f"{month:02}/01/{year}" for year in (2020, 2021) for month in range(1, 13)], "month first", False),
        ([f"{day:02}/{month:02}/2020" for month in (1, 2) for day in range(1, 13)], "day first", False),
        (["2024-01-02", "2024-01-03"], "year first", False),
    ],
)
def test_order_of_day_and_month_is_resolved_over_the_column(column, order, ambiguous):
    dates = parse_dates(column)
    assert (dates.order, dates.ambiguous) == (order, ambiguous)


def test_new_values_keep_the_order_of_earlier_ones():
    assert days(parse_dates(["03/04/2024"], order="day first")) == ["2024-04-03"]
    assert days(parse_dates(["03/04/2024"], order="month first")) == ["2024-03-04"]
    assert days(parse_dates(["2024-04-03"], order="day first")) == ["2024-04-03"]


def test_offset_is_known_if_all_values_have_the_same():
    assert parse_dates(["2024-01-01 00:00+01:00", "2024-01-01 01:00+01:00"]).offset == 60
    assert parse_dates(["2024-01-01 00:00+01:00", "2024-07-01 01:00+02:00"]).offset is None
    assert parse_dates(["2024-01-01", "2024-01-02"]).offset is None
