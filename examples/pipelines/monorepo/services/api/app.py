"""What a thing costs, as the shop shows it."""

import money


def price(count, each):
    return money.text(count * money.cents(each))
