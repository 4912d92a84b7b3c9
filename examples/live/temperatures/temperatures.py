"""From degrees Celsius to what others read."""


def fahrenheit(event):
    return {"topic": "temperature", "unit": "F", "value": round(event.attributes["value"] * 9 / 5 + 32, 2)}


def kelvin(event):
    value = round(event.attributes["value"] + 273.15, 2)
    if value < 0:
        raise ValueError(f"{event.attributes['value']} degrees Celsius is below absolute zero")
    return {"topic": "temperature", "unit": "K", "value": value}
